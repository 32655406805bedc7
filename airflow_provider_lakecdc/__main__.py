"""Run the command line without the command ``airflow``: ``python -m airflow_provider_lakecdc health``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence


def parser() -> ArgumentParser:
    """The parser of the commands that Airflow is told of."""
    from airflow_provider_lakecdc.cli.definition import get_lakecdc_commands

    (group,) = get_lakecdc_commands()
    found = ArgumentParser(prog="python -m airflow_provider_lakecdc", description=group.help)
    commands = found.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in group.subcommands:
        one = commands.add_parser(command.name, help=command.help, description=command.description)
        for argument in command.args:
            argument.add_to_parser(one)
        one.set_defaults(func=command.func)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit, see :func:`airflow_provider_lakecdc.cli.running.run_command`."""
    asked = parser().parse_args(argv)
    asked.func(asked)


if __name__ == "__main__":
    main()
