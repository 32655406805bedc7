"""Make the start and the reuse of Spark's Python workers cheap; otherwise each reuse costs 0.3 s.

Between tasks PySpark invalidates import caches and collects garbage. Up to Python 3.12 the first reads the directory of
each archive on the module path, including Spark's own jar; the second visits every object. Unused imports of pandas by
libraries delay each start, also of drivers, by a second and a half.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
import uuid
import zipimport
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

#: variable with the MiB that a task may use beside the heap
TASK_MEMORY = "LAKECDC_TASK_MEMORY"
_POOL = "ARROW_DEFAULT_MEMORY_POOL"
# with less memory, a task cannot fold the events of 600,000 keys, the smallest part that it passes on
_LEAST_MEMORY = 256
# jobs use threads, and the list of modules is shared
_one_at_a_time = threading.RLock()
_settled = False


class TaskProgress:
    """Rows and bytes that a task has read, logged every ten seconds to standard error.

    The driver learns nothing about a Python task before its end. With a local master the lines reach the job's log, on
    a cluster the executor's.

    :param what: the table and the task.
    """

    _PACE = 10.0

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._begun = self._logged = clock()
        self._rows = self._bytes = 0

    def add(self, rows: int, size: int) -> None:
        """Count rows and bytes, and log the totals if the last line is old enough."""
        self._rows, self._bytes = self._rows + rows, self._bytes + size
        now = self._clock()
        if now - self._logged >= self._PACE:
            from lakecdc.contract.runtime import PROGRESS

            self._logged = now
            text = f"{self._rows:,} rows, {self._bytes / 1024**2:,.0f} MB in {now - self._begun:.0f} seconds"
            # the format of the job's log; a single write, because tasks share the stream
            moment = time.strftime("%Y-%m-%d %H:%M:%S,000")
            sys.stderr.write(f"{moment} INFO {__name__}: {PROGRESS}{self._what}: {text}\n")
            sys.stderr.flush()


def prepare_workers(environment: dict[str, str], task_memory: int) -> None:
    """Set the environment variables of Python workers, except those that the user has set.

    :param task_memory: memory of a task in MiB.
    """
    import pyarrow as pa

    environment[TASK_MEMORY] = str(task_memory)
    if "jemalloc" in pa.supported_memory_backends():
        # tables of some megabytes come and go: Arrow's own choice, mimalloc, returns their memory to the system each
        # time, and to read and sort files then costs up to twice the CPU time
        environment.setdefault(_POOL, "jemalloc")


def settle() -> None:
    """Avoid both costs for this worker's next tasks; called at the start of a task."""
    global _settled
    forget_archives()
    if not _settled:
        gc.freeze()
        _settled = True


def forget_archives() -> None:
    """Remove jars from this process's module path, and drop cached directories of other archives."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # a later import from the archive creates a new importer, which already knows the directory
            del sys.path_importer_cache[path]


def open_duckdb(files: Sequence[str] = ()) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with one thread for one task, in UTC like the session; ``cursor()`` opens another connection.

    It respects the task's memory, spills to Spark's disks, and cannot access other files, machines or extensions.

    :param files: local paths that it may read.
    """
    import duckdb
    import pyarrow as pa

    limit = max(_LEAST_MEMORY, int(os.environ.get(TASK_MEMORY, "0")))
    connection = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{limit}MiB",
            # DuckDB creates the folder on demand, and removes it
            "temp_directory": os.path.join(spill_folder(), f"duckdb-{os.getpid()}-{uuid.uuid4().hex}"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    # as an initial setting it would forbid the spill folder
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
    """Return a folder on one of Spark's disks for this process."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return folders[os.getpid() % len(folders)]


class _Absent:
    """Finder that reports pandas as missing; Arrow would mistake a None in ``sys.modules`` for the module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from libraries, unless it is already imported.

    PySpark's ``lit`` checks whether numpy is installed, DuckDB whether a table is a pandas DataFrame, and Arrow's
    datasets, which pyiceberg imports, whether a scalar is a pandas array; each imports all of pandas for that and
    remembers the answer. ``createDataFrame`` checks every time.
    """
    with _one_at_a_time:
        if "pandas" in sys.modules:
            yield
            return
        sys.meta_path.insert(0, _Absent)
        try:
            yield
        finally:
            sys.meta_path.remove(_Absent)
