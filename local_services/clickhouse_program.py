"""Answer queries, one in JSON per line; :mod:`local_services.readers` starts this in a separate environment."""

from __future__ import annotations

import base64
import json
import sys

import chdb


def main() -> None:
    """Answer each input line with a line."""
    for line in sys.stdin:
        try:
            rows = chdb.query(json.loads(line), "Arrow")
            answer = {"arrow": base64.b64encode(rows.bytes()).decode()}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
