"""Duration of each phase of a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Sum of seconds by phase."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body of the ``with``; the same name may come again."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - begun

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds by name, rounded to milliseconds."""
        return {name: round(value, 3) for name, value in self._seconds.items()}
