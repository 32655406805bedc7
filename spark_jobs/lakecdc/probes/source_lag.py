"""Measure the tables' lag behind their source without Spark: ``python -m lakecdc.probes.source_lag < question.json``.

The question is ``{"source": …, "positions": {table: text}}``, with positions as in snapshot summaries; the answer is a
JSON object by table, in bytes of Postgres' log or in Kafka messages.
"""

from __future__ import annotations

import json
import sys

from lakecdc.contract.errors import LakecdcError, SourceUnavailableError
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_DONE, EXIT_OTHER
from lakecdc.contract.secrets import mask
from lakecdc.contract.sources import parse_source
from lakecdc.contract.spec import loads
from lakecdc.ingest.probe_api import measure_lag
from lakecdc.metadata.positions import decode


def main() -> int:
    """Answer the question on standard input.

    :return: 4 if the source is the wrong one, 1 if it is unreachable, each with the reason on standard output.
    """
    question = loads(sys.stdin.read())
    positions = {table: decode(text) for table, text in question["positions"].items()}
    try:
        lag = measure_lag(parse_source(question["source"], ()), positions)
    except (LakecdcError, ImportError) as error:
        print(mask(str(error)))
        return EXIT_OTHER if isinstance(error, SourceUnavailableError) else EXIT_BAD_INPUT
    print(json.dumps(lag))
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
