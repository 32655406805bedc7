"""Count the events that are read as structs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from lakecdc.ingest.engine.alike import Alike
from lakecdc.ingest.engine.layout import Places


@contextmanager
def read_as_structs() -> Iterator[list[int]]:
    """Yield the numbers of events that are read as structs, one for each part of the messages."""
    counts, places = list[int](), Alike.places

    def noted(self: Alike) -> Places:
        counts.append(len(self.ops))
        return places(self)

    with patch.object(Alike, "places", noted):
        yield counts
