"""A process that commits to a table in a way that shows whether and how often each commit arrived."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from benchmarks.catalog import count_refusals

NAME = "shop.orders"
#: one of this number of commits appends a row, the others set a property
ROWS_EVERY = 5
SCHEMA = pa.schema([("id", pa.string())])


def commit(properties: dict[str, str], endpoint: str, writer: int, commits: int) -> dict[str, Any]:
    """Commit with the writer's own ids; return how often other writers were first.

    :param endpoint: endpoint of the server, for all files but the catalog's.
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
