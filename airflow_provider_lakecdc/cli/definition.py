"""The commands and their arguments, as Airflow's extension point for providers wants them.

Airflow imports this module for each of its own commands, so it imports nothing but the types that they are told in;
what a command needs is imported when it runs.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import NoReturn

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, positive_int

_JSON = Arg(("--json",), action="store_true", help="Print JSON instead of a table.")
_VERBOSE = Arg(("-v", "--verbose"), action="store_true", help="Show what is logged, and where an error comes from.")
_CONFIG = Arg(
    ("--config",),
    metavar="FILE",
    type=str,
    help="Configuration of the DAGs; default: LAKECDC_CONFIG, then config_file of Airflow's section lakecdc.",
)
_CATALOG = Arg(
    ("--catalog",),
    metavar="CONN_ID",
    help="Connection of type iceberg, instead of a configuration.",
)
_TABLES = Arg(
    ("tables",),
    nargs="*",
    metavar="TABLE",
    help="namespace.name, patterns such as 'shop.*', and '!*.tmp_*' for what these must not find.",
)
_PARTITIONS = Arg(
    ("--partitions",), action="store_true", help="Also tell when each partition was changed; this reads all manifests."
)

_SINCE = Arg(("--since",), metavar="MOMENT", help="ISO-8601, without a zone UTC; or how long ago, such as 36h or 7d.")
_LIMIT = Arg(
    ("--limit",), type=positive_int(allow_zero=False), default=100, metavar="N", help="Rows at most; default 100."
)
_JOB = Arg(("job",), metavar="JOB", help="Such as compact_data_files; docs/job-contract.md has all.")
_ONLY = Arg(
    ("--tables",),
    nargs="+",
    default=[],
    metavar="TABLE",
    help="namespace.name and patterns; default: those of the configuration.",
)
_OPTIONS = Arg(("--options",), metavar="JSON", default="{}", help="Options of the job, before the configuration's.")
_DRY_RUN = Arg(("--dry-run",), action="store_true", help="Plan and measure, change nothing.")
_DAG = Arg(
    ("--dag",),
    choices=("hourly", "nightly", "weekly"),
    default="nightly",
    help="Governance DAG whose run is planned; default: nightly.",
)


def get_lakecdc_commands() -> list[GroupCommand]:
    """The commands that the provider adds to ``airflow``."""
    commands = (
        _command(
            "check",
            "Look for what jobs need, and say what to do where it is missing",
            "Looks at this machine, the connections, the catalog, the source and the configuration, without Spark.\n"
            "Exit code 1: something is missing.",
            (_CONFIG, _CATALOG),
        ),
        _command(
            "health",
            "Tell which tables hurt their readers, worst first",
            "Measures tables from their metadata, without Spark: those that are named,\n"
            "else those of the configuration. Exit code 1: a table cannot be read.",
            (_TABLES, _CONFIG, _CATALOG, _PARTITIONS),
        ),
        _command(
            "history",
            "Tell what jobs have done to tables, the newest first",
            "Reads the audit in the lake, the table lakecdc.audit.",
            (_TABLES, _SINCE, _LIMIT, _CONFIG, _CATALOG),
        ),
        _command(
            "plan",
            "Tell what governance would do now, what it would take, and why",
            "Looks at tables and chooses as the governance DAGs do, and does nothing.\n"
            "Exit code 1: a table cannot be looked at.",
            (_TABLES, _CONFIG, _DAG),
        ),
        _command(
            "run",
            "Run one job now, outside any DAG run",
            "Submits the job as its operator does, waits for its end, and tells what came of it.\n"
            "Exit code 1: it failed, 3: another writer was faster, 4: bad input.",
            (_JOB, _ONLY, _OPTIONS, _DRY_RUN, _CONFIG, _CATALOG),
        ),
    )
    return [GroupCommand(name="lakecdc", help="Feed and govern Iceberg tables", subcommands=commands)]


def _command(name: str, help: str, description: str, arguments: tuple[Arg, ...]) -> ActionCommand:
    """A command whose function is ``main`` of the module that has its name."""
    return ActionCommand(name, help, _running(name), (*arguments, _JSON, _VERBOSE), description)


def _running(name: str) -> Callable[[Namespace], NoReturn]:
    def run(asked: Namespace) -> NoReturn:
        from airflow_provider_lakecdc.cli.running import run_command

        run_command(name, asked)

    return run
