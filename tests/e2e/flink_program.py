"""Run SQL in Flink: the input is a JSON list of statements; the rows of each query are a line of JSON.

Runs in Flink's environment, which :mod:`local_services.flink` makes.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

ANSWER = "rows "


def main() -> None:
    """Run the statements one after the other."""
    table = import_module("pyflink.table")
    environment = table.TableEnvironment.create(table.EnvironmentSettings.new_instance().in_batch_mode().build())
    environment.get_config().set("rest.port", "0")
    for statement in json.load(sys.stdin):
        result = environment.execute_sql(statement)
        if statement.startswith("INSERT"):
            result.wait()
        elif statement.startswith(("SELECT", "SHOW")):
            with result.collect() as rows:
                print(ANSWER + json.dumps([list(row) for row in rows]))
    sys.stdout.flush()
    # the mini cluster's threads would keep the process alive
    os._exit(0)


if __name__ == "__main__":
    main()
