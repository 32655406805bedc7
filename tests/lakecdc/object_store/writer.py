"""A process that commits to a table, each time something that shows whether it has arrived, and how often."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from benchmarks.catalog import count_refusals

NAME = "shop.orders"
#: of so many commits one appends a row, and the others set a property
ROWS_EVERY = 5
SCHEMA = pa.schema([("id", pa.string())])


def commit(properties: dict[str, str], endpoint: str, writer: int, commits: int) -> dict[str, Any]:
    """Commit with ids of the writer's own; return how often others were first.

    :param endpoint: of the server, for all files but the catalog's.
    """
    catalog = load_catalog("lake", **properties)
    catalog.properties["s3.endpoint"] = endpoint
    refused, again, table = count_refusals(catalog), 0, catalog.load_table(NAME)
    for number in range(commits):
        id, done = f"{writer}-{number}", False
        while not done:
            try:
                if number % ROWS_EVERY == 0:
                    table.append(pa.table({"id": [id]}, SCHEMA), {"id": id})
                else:
                    table.transaction().set_properties({id: "set"}).commit_transaction()
                done = True
            except CommitFailedException:
                table, again = catalog.load_table(NAME), again + 1
    return {"refused": refused[0], "failed": again}


if __name__ == "__main__":
    print(json.dumps(commit(**json.loads(sys.argv[1]))))
