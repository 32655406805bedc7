"""PySpark's daemon, which has imported what tasks need: its workers are forks, and each would import that by itself.

Spark starts it with ``spark.python.daemon.module``. It ends a worker that had nothing to do for a minute, so that the
next stage would pay for the imports again, once per core.
"""

from __future__ import annotations

import contextlib
import gc
from importlib import import_module

from pyspark.daemon import manager

from lakecdc.runtime.unwanted_imports import without_pandas

_MODULES = (
    *("numpy", "pyarrow.compute", "pyarrow.parquet", "pyspark.sql.pandas.serializers", "duckdb", "pyroaring"),
    *("pyiceberg.io.pyarrow", "lakecdc.runtime.worker", "lakecdc.iceberg.file_io"),
)


def prepare() -> None:
    """Import what this machine has of the modules, none of which starts a thread that a fork would miss."""
    with without_pandas():
        for name in _MODULES:
            with contextlib.suppress(ImportError):
                import_module(name)
    gc.freeze()


if __name__ == "__main__":
    prepare()
    manager()
