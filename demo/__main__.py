"""``python -m demo``: see ``--help``."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from rich.console import Console

from demo.run import run
from demo.settings import from_environment
from demo.source import start_again
from local_services.process import ServiceError


def main() -> int:
    """Run the demo, or start the source of an earlier run."""
    parser = argparse.ArgumentParser(
        prog="demo",
        description="Ingests a shop's Postgres into Iceberg tables under Airflow and compares both at the end.",
        epilog="Environment: DEMO_SEED (42), DEMO_ROWS (200000), DEMO_HOURS (6), DEMO_FOLDER (build/demo), "
        "DEMO_CATALOG (sqlite; object_store has tables on a local S3 server, without a catalog).",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ui", action="store_true", help="leave Airflow's web page up until Ctrl-C")
    which.add_argument("--source", action="store_true", help="start the Postgres of the last run, until Ctrl-C")
    arguments = parser.parse_args()
    # both signals take the path that stops the servers; a shell that starts the demo in the background ignores SIGINT,
    # which children inherit
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, _interrupt)
    try:
        settings = from_environment()
        if arguments.source:
            return _keep_source_up()
        return run(settings, Console(), arguments.ui)
    except (ValueError, FileNotFoundError, ServiceError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _keep_source_up() -> int:
    source = start_again(from_environment())
    print(f"Postgres: {source.postgres.uri}  (Ctrl-C ends it)", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        source.stop()
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
