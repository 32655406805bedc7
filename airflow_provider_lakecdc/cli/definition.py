"""The commands and their arguments, for Airflow's extension point for providers.

Airflow imports this module for each of its own commands, so it imports only Airflow's argument types; a command
imports what it needs when it runs.
"""

from __future__ import annotations

from functools import partial

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, lazy_load_command, positive_int

_JSON = Arg(("--json",), action="store_true", help="Print JSON instead of a table.")
_VERBOSE = Arg(("-v", "--verbose"), action="store_true", help="Show logs and tracebacks.")
_CONFIG = Arg(
    ("--config",),
    metavar="FILE",
    type=str,
    help="Configuration of the DAGs; default: LAKECDC_CONFIG, then config_file of Airflow's section lakecdc.",
)
_CATALOG = Arg(("--catalog",), metavar="CONN_ID", help="Connection of type iceberg, instead of a configuration.")
_TABLES = Arg(
    ("tables",),
    nargs="*",
    metavar="TABLE",
    help="namespace.name, patterns such as 'shop.*', and exclusions such as '!*.tmp_*'.",
)
_PARTITIONS = Arg(
    ("--partitions",), action="store_true", help="Show also when each partition changed last; this reads all manifests."
)

_SINCE = Arg(("--since",), metavar="MOMENT", help="ISO-8601 (UTC without a zone), or an age such as 36h or 7d.")
_LIMIT = Arg(
    ("--limit",), type=positive_int(allow_zero=False), default=100, metavar="N", help="Maximum of rows; default: 100."
)
_JOB = Arg(("job",), metavar="JOB", help="Such as compact_data_files; see docs/reference/job-contract.md for all.")
_ONLY = Arg(
    ("--tables",),
    nargs="+",
    default=[],
    metavar="TABLE",
    help="namespace.name and patterns; default: those of the configuration.",
)
_OPTIONS = Arg(("--options",), metavar="JSON", default="{}", help="Options of the job; override the configuration's.")
_DRY_RUN = Arg(("--dry-run",), action="store_true", help="Plan and measure, change nothing.")
_DAG = Arg(
    ("--dag",),
    choices=("hourly", "nightly", "weekly"),
    default="nightly",
    help="Governance DAG whose run is planned; default: nightly.",
)

_SERVE = (
    Arg(
        ("--host",), default="127.0.0.1", help="Address to serve on; default: 127.0.0.1. Any other needs a certificate."
    ),
    Arg(("--port",), type=positive_int(allow_zero=True), default=8181, help="Default: 8181; 0 is a free one."),
    Arg(("--write",), action="store_true", help="Accept commits and other changes; default: reads only."),
    Arg(("--certificate",), metavar="FILE", help="Certificate chain for TLS, as PEM."),
    Arg(("--key",), metavar="FILE", help="Key of the certificate, as PEM; default: in the file of the certificate."),
    Arg(("--token-env",), metavar="NAME", help="Environment variable with the token that clients send."),
    Arg(("--token-file",), metavar="FILE", help="File with that token."),
)
_COPY = (
    Arg(("--from",), dest="source", required=True, metavar="CONN_ID", help="Connection that has the tables."),
    Arg(("--to",), dest="target", required=True, metavar="CONN_ID", help="Connection to register them in."),
    Arg(
        ("tables",),
        nargs="*",
        metavar="TABLE|NAMESPACE",
        help="Tables, namespaces and patterns such as 'shop.*' and '!*.tmp_*'; default: all.",
    ),
)


def get_lakecdc_commands() -> list[GroupCommand]:
    """Return the commands that the provider adds to ``airflow``."""
    commands: tuple[ActionCommand | GroupCommand, ...] = (
        _command(
            "check",
            "Check everything that jobs need, and show what to do if it is missing",
            "Checks this machine, the connections, the catalog, the source and the configuration, without Spark.\n"
            "Exit code 1: something is missing.",
            (_CONFIG, _CATALOG),
        ),
        _command(
            "health",
            "List the least healthy tables first",
            "Measures tables from their metadata, without Spark: the named ones,\n"
            "or those of the configuration. Exit code 1: a table cannot be read.",
            (_TABLES, _CONFIG, _CATALOG, _PARTITIONS),
        ),
        _command(
            "history",
            "List what jobs did to tables, newest first",
            "Reads the audit in the lake, the table lakecdc.audit.",
            (_TABLES, _SINCE, _LIMIT, _CONFIG, _CATALOG),
        ),
        _command(
            "costs",
            "Show what jobs cost by DAG run and table, and what they saved readers",
            "Reads the audit in the lake; money needs prices in the configuration. Default: the last 30 days.",
            (_SINCE, _CONFIG, _CATALOG),
        ),
        _command(
            "plan",
            "Show what governance would do now, its cost, and why",
            "Assesses tables and plans as the governance DAGs do, and changes nothing.\n"
            "Exit code 1: a table cannot be assessed.",
            (_TABLES, _CONFIG, _DAG),
        ),
        _command(
            "run",
            "Run one job now, outside any DAG run",
            "Submits the job as its operator does, waits for its end, and prints the result.\n"
            "Exit code 1: it failed, 3: another writer was faster, 4: bad input.",
            (_JOB, _ONLY, _OPTIONS, _DRY_RUN, _CONFIG, _CATALOG),
        ),
        _command(
            "serve",
            "Serve a catalog of type object_store to other engines",
            "Serves it as an Iceberg REST catalog until it is interrupted: to clients with a token,\n"
            "by TLS or on a loopback address. It has no state, so several may serve one catalog.",
            (*_SERVE, _CONFIG, _CATALOG),
        ),
        GroupCommand(
            name="catalog",
            help="Move tables between catalogs",
            subcommands=(
                _command(
                    "copy",
                    "Register tables of one catalog in another one",
                    "Registers the current metadata of tables in another catalog of any type; no data is copied.\n"
                    "Stop their writers first: afterwards only one of the two may be written.\n"
                    "Exit code 1: a table cannot be copied.",
                    (*_COPY, _DRY_RUN),
                    module="catalog_copy",
                ),
            ),
        ),
    )
    return [GroupCommand(name="lakecdc", help="Feed and govern Iceberg tables", subcommands=commands)]


def _command(
    name: str, help: str, description: str, arguments: tuple[Arg, ...], module: str | None = None
) -> ActionCommand:
    """Return a command that calls ``main`` of a module, by default of the one with its name."""
    run = partial(lazy_load_command("airflow_provider_lakecdc.cli.running.run_command"), module or name)
    return ActionCommand(name, help, run, (*arguments, _JSON, _VERBOSE), description)
