"""Create, drop or show the slot and the publication of an ingest spec; needs neither Spark nor a report.

postgres_slot.py create --spec spec.json    publication of the targets' tables and the slot, for ``"create": false``
postgres_slot.py drop   --spec spec.json    both; the target tables must be reloaded in full afterwards
postgres_slot.py status --spec spec.json    one JSON object: the slot's position and what it retains at the source
"""

from __future__ import annotations

import argparse
import json
import sys

from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.spec import loads, parse_spec
from lakecdc.runtime import documents


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    :return: the exit code: 0 done, 3 the slot is in use, 4 bad input, 1 anything else.
    """
    parser = argparse.ArgumentParser(prog="postgres_slot", description="slot and publication of an ingest spec")
    parser.add_argument("command", choices=("create", "drop", "status"))
    parser.add_argument("--spec", required=True, help="URI of the ingest job's spec, JSON")
    arguments = parser.parse_args(argv)
    try:
        from lakecdc.ingest.sources.postgres.administration import COMMANDS

        spec = parse_spec(loads(documents.read_text(arguments.spec)), "ingest")
        print(json.dumps(COMMANDS[arguments.command](spec), indent=2))
    except LakecdcError as error:
        print(f"postgres_slot: {error}", file=sys.stderr)
        return {"conflict": 3, "bad input": 4}.get(error.failure_class, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
