"""Cheap reuse of Spark's Python workers, which otherwise costs 0.3 s for each task.

Between tasks PySpark invalidates import caches and collects garbage. Up to Python 3.12 the first reads the directory of
each archive in which a module was looked for, Spark's own jar among them; the second visits every object.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import uuid
import zipimport
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakecdc.runtime.unwanted_imports import without_pandas

if TYPE_CHECKING:
    import duckdb

#: variable with the MiB that a task may use beside the heap
TASK_MEMORY = "LAKECDC_TASK_MEMORY"
# with less, a task cannot fold the events of 600,000 keys, and it cannot hand on fewer
_LEAST_MEMORY = 256
_settled = False


def settle() -> None:
    """Avoid both costs for this worker's next tasks; called at the start of a task."""
    global _settled
    forget_archives()
    if not _settled:
        gc.freeze()
        _settled = True


def forget_archives() -> None:
    """Remove jars from this process' module path, and forget the directories of other archives."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # a later import from the archive creates a new one, which already knows the directory
            del sys.path_importer_cache[path]


def duckdb_of_its_own(files: Sequence[str] = ()) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with one thread for one task, in UTC like the session; ``cursor()`` opens another connection.

    It respects the task's memory, spills to Spark's disks, and reaches no other file, machine or extension.

    :param files: local paths that it may read.
    """
    import duckdb
    import pyarrow as pa

    limit = max(_LEAST_MEMORY, int(os.environ.get(TASK_MEMORY, "0")))
    connection = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{limit}MiB",
            # DuckDB creates it on demand, and removes it
            "temp_directory": os.path.join(spill_folder(), f"duckdb-{os.getpid()}-{uuid.uuid4().hex}"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    # in the configuration it would forbid the spill folder
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    if files:
        with without_pandas():
            connection.execute("SET GLOBAL allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    with without_pandas():
        connection.register("nothing", pa.table({"nothing": pa.nulls(0)}))
    connection.unregister("nothing")
    return connection


def spill_folder() -> str:
    """Return one of Spark's disks for this process."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return folders[os.getpid() % len(folders)]
