"""Imports of libraries that nobody here uses, spared: a second and a half of every start of a driver or a worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# tables are worked on in threads, and the list of modules is everybody's
_one_at_a_time = threading.RLock()


@contextmanager
def without_pandas() -> Iterator[None]:
    """Let libraries that look for pandas find none, unless it is there already.

    PySpark's ``lit`` asks its testing tools whether numpy is installed, and DuckDB whether a table is a DataFrame of
    pandas; both import the whole of it for that, and both remember the answer. ``createDataFrame`` asks anew each time.
    """
    with _one_at_a_time:
        if "pandas" in sys.modules:
            yield
            return
        sys.modules["pandas"] = None  # type: ignore[assignment]
        try:
            yield
        finally:
            del sys.modules["pandas"]
