"""Run the command line without the command ``airflow``: ``python -m airflow_provider_lakecdc health``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.cli.cli_config import GroupCommand


def parser() -> ArgumentParser:
    """Create the parser of the commands in Airflow's extension point."""
    from airflow_provider_lakecdc.cli.definition import get_lakecdc_commands

    (group,) = get_lakecdc_commands()
    root = ArgumentParser(prog="python -m airflow_provider_lakecdc", description=group.help)
    _add(root, group)
    return root


def _add(parser: ArgumentParser, group: GroupCommand) -> None:
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in group.subcommands:
        one = commands.add_parser(command.name, help=command.help, description=command.description)
        if hasattr(command, "subcommands"):
            _add(one, command)
            continue
        for argument in command.args:
            argument.add_to_parser(one)
        one.set_defaults(func=command.func)


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    args.func(args)


if __name__ == "__main__":
    main()
