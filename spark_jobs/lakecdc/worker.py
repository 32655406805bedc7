"""Python workers of Spark, made cheap to use again: for each task that a worker takes it costs 0.3 s otherwise.

Between tasks PySpark invalidates the import system's caches and collects garbage. The first reads the directory of
``pyspark.zip`` again for every package that was imported out of it; the second visits every object of every module.
"""

from __future__ import annotations

import gc
import sys
import zipimport

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
