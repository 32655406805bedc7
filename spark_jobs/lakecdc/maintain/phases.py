"""How long each part of a job took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Adds up seconds by name."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside the ``with``; the same name may come again."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - begun

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by name, rounded to milliseconds."""
        return {name: round(value, 3) for name, value in self._seconds.items()}
