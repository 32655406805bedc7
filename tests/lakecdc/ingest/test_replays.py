"""If a source sends events again, the table still equals the source, and nothing is quarantined."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, final_rows, in_batches
from tests.lakecdc.ingest.histories import History

Events = list[dict[str, Any]]


class Replay:
    """A table whose source repeats events in every batch, with new arrival numbers."""

    def __init__(self, lake: Lake, folder: Path, **target: Any) -> None:
        self.feed = Feed(lake, folder, {"partition_by": ["bucket(2, id)"], **target})
        self._arrivals = itertools.count()

    def take(self, events: Events) -> TableReport:
        report = self.feed.take([{**event, "offset": next(self._arrivals)} for event in events])
        assert report.metrics.get("quarantined", 0) == 0
        return report


@pytest.mark.soak
@pytest.mark.parametrize(("seed", "mode"), [(3, "upsert"), (2, "merge")])
def test_batches_that_repeat_earlier_events_equal_the_source(lake: Lake, tmp_path: Path, seed: int, mode: str) -> None:
    replay, history, rng = Replay(lake, tmp_path, mode=mode), History.of(seed, 70, keys=8), random.Random(seed)
    sent: Events = []
    for events in in_batches(history, 25, 40, 52):
        again = sent[-rng.randrange(1, 20) :] if sent else []
        if again and again[0]["headers"]:
            again = sent[-len(again) - 1 :]
        replay.take([*again, *events])
        sent += events
    assert replay.feed.rows() == final_rows(history)


def test_a_repeated_key_change_is_not_followed(lake: Lake, tmp_path: Path) -> None:
    """The old key's row is in no snapshot; the new key's row is complete."""
    replay, history = Replay(lake, tmp_path), History(random.Random(1))
    history.insert(1)
    history.change_key(1, 2)
    first = len(history.events)
    replay.take(history.events)
    history.update(2, touch_doc=False)
    replay.take(history.events[1:])
    history.change_key(2, 3)
    history.update(3, touch_doc=False)
    replay.take(history.events)
    assert replay.feed.rows() == final_rows(history)
    assert first == 3


def test_a_repeated_value_is_not_the_newest(lake: Lake, tmp_path: Path) -> None:
    """Of two changes of a large value, only the older one arrives again, before an update that omits it."""
    replay, history = Replay(lake, tmp_path), History(random.Random(2))
    history.insert(1)
    history.update(1, touch_doc=True)
    history.update(1, touch_doc=True)
    replay.take(history.events)
    history.update(1, touch_doc=False)
    replay.take([history.events[1], history.events[-1]])
    assert replay.feed.rows() == final_rows(history)
