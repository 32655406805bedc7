"""Suppression of unused library imports, which would take a second and a half of every driver or worker start."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# jobs use threads, and the list of modules is shared
_one_at_a_time = threading.RLock()


class _Absent:
    """Finder that reports pandas as missing. Arrow would take a None in ``sys.modules`` for the module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse to find pandas; a finder of ``sys.meta_path``."""
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from libraries that look for it, unless it is already imported.

    PySpark's ``lit`` asks its own testing tools whether numpy is installed, DuckDB whether a table is a DataFrame of
    pandas, and Arrow's datasets, which pyiceberg imports, whether a scalar is one of its arrays; all import the whole
    of it for that, and all remember the answer. ``createDataFrame`` asks each time.
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
