"""Python workers of Spark, made cheap to use again: for each task that a worker takes it costs 0.3 s otherwise.

Between tasks PySpark invalidates the import system's caches and collects garbage. The first reads the directory of
``pyspark.zip`` again for every package that was imported out of it; the second visits every object of every module.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import uuid
import zipimport
from typing import TYPE_CHECKING

from lakecdc.runtime.unwanted_imports import without_pandas

if TYPE_CHECKING:
    import duckdb

#: variable that tells a task how many MiB it may use beside the heap
TASK_MEMORY = "LAKECDC_TASK_MEMORY"
# with less, the last events of 600,000 keys are not told, and a task has no way to hand on fewer
_LEAST_MEMORY = 256
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
    """A DuckDB of one thread for one task, in UTC as the session; ``cursor()`` of it is another connection.

    It keeps to the task's memory, writes what is too much for it to Spark's disks, and reaches no other file, no other
    machine and no extension: what it works on is handed to it.
    """
    import duckdb
    import pyarrow as pa

    limit = max(_LEAST_MEMORY, int(os.environ.get(TASK_MEMORY, "0")))
    connection = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{limit}MiB",
            "temp_directory": _spill_folder(),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    # as part of the configuration it would forbid the folder
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_external_access = false")
    with without_pandas():
        connection.register("nothing", pa.table({"nothing": pa.nulls(0)}))
    connection.unregister("nothing")
    return connection


def _spill_folder() -> str:
    """A name for a folder on one of Spark's disks, which DuckDB makes when it needs it and removes."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return os.path.join(folders[os.getpid() % len(folders)], f"duckdb-{os.getpid()}-{uuid.uuid4().hex}")
