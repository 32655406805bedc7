"""Imports of libraries that nobody here uses, spared: a second and a half of every start of a driver or a worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# tables are worked on in threads, and the list of modules is everybody's
_one_at_a_time = threading.RLock()


class _Absent:
    """Finds no pandas. A None among ``sys.modules`` would do for Python, but Arrow takes it for the module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Tell whether there is such a module; a finder of ``sys.meta_path``."""
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Let libraries that look for pandas find none, unless it is there already.

    PySpark's ``lit`` asks its own testing tools whether numpy is installed, DuckDB whether a table is a DataFrame of
    pandas and Arrow's datasets, which pyiceberg imports, whether a scalar is one of its arrays; all import the whole of
    it for that, and all remember the answer. ``createDataFrame`` asks anew each time.
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
