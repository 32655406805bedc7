"""PySpark's daemon with the imports that tasks need; otherwise each worker, a fork of it, would import them.

Spark starts it by ``spark.python.daemon.module``, and ends idle workers after a minute, so the next stage would repeat
the imports, once per core.
"""

from __future__ import annotations

import contextlib
import gc
from importlib import import_module

from pyspark.daemon import manager

from lakecdc.runtime.worker import forget_archives, without_pandas

_MODULES = (
    *("numpy", "pyarrow.compute", "pyarrow.parquet", "pyspark.sql.pandas.serializers", "duckdb", "pyroaring"),
    *("pyiceberg.io.pyarrow", "lakecdc.iceberg.file_io"),
)


def prepare() -> None:
    """Import the available modules, none of which starts a thread that a fork would miss, and forget the jars."""
    with without_pandas():
        for name in _MODULES:
            with contextlib.suppress(ImportError):
                import_module(name)
    forget_archives()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    manager()
