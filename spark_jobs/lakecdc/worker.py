"""Python workers of Spark, made cheap to use again: for each task that a worker takes it costs 0.3 s otherwise.

Between tasks PySpark invalidates the import system's caches and collects garbage. The first reads the directory of
``pyspark.zip`` again for every package that was imported out of it; the second visits every object of every module.
"""

from __future__ import annotations

import gc
import sys
import zipimport
from typing import TYPE_CHECKING

from lakecdc.unwanted_imports import without_pandas

if TYPE_CHECKING:
    import duckdb

_settled = False


def settle() -> None:
    """Spare the next tasks of this worker both; called at the start of a task."""
    global _settled
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # a later import out of the archive makes a new one, which knows the directory already
            del sys.path_importer_cache[path]
    if not _settled:
        gc.freeze()
        _settled = True


def duckdb_of_its_own() -> duckdb.DuckDBPyConnection:
    """A DuckDB of one thread for one task, in UTC as the session."""
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    with without_pandas():
        connection.register("nothing", pa.table({"nothing": pa.nulls(0)}))
    connection.unregister("nothing")
    return connection
