"""Suppress unused imports of libraries, which delay each start of a driver or worker by a second and a half."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# jobs use threads, and the list of modules is shared
_one_at_a_time = threading.RLock()


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
