"""Suppress unused imports of libraries, which take a second and a half of each start of a driver or worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# jobs use threads, and the list of modules is shared
_one_at_a_time = threading.RLock()


class _Absent:
    """Finder that reports pandas as missing, since Arrow takes a None in ``sys.modules`` for the module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from libraries, unless it is already imported.

    PySpark's ``lit`` asks its own testing tools whether numpy is installed, DuckDB whether a table is a DataFrame of
    pandas, and Arrow's datasets, which pyiceberg imports, whether a scalar is one of its arrays; all import the whole
    of it for that and remember the answer. ``createDataFrame`` asks each time.
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
