"""Track how far a table has been fed from its topics, and encode it in a position.

The position's offsets are a JSON object::

    {"epoch": 1,                                    number of the topics' identity; one more when a topic is recreated
     "topics": {"pg.shop.orders": {"id": "…", "next": [12, 40]}},    topic id, next offset of each partition
     "marks": "…",                                  highest order key applied by partition, packed
     "strict": "…"}                                 why marks are no longer trusted; then there are none
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.kafka.cluster import Place, Range, count
from lakecdc.metadata.positions import MAX_BYTES, Position
from lakecdc.model.order import highest, time_of

SOURCE = "kafka"
# room for the rest of a position: identity, read-through, highest order key
_RESERVED_BYTES = 512
# milliseconds since 1970, far beyond any record
_LAST_MOMENT = 2**42
TOO_MANY = "too many partitions to keep a mark for each"


@dataclass(frozen=True)
class Followed:
    """A topic that feeds the table; its id is empty with old brokers, ``next`` the next offset to read by partition."""

    id: str
    next: tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """How far a table has been fed.

    :param marks: highest order key applied by partition; partitions without events have none.
    :param strict: why a key may have changed its partition, so that marks cannot be trusted; None if they can.
    """

    epoch: int = 1
    topics: Mapping[str, Followed] = field(default_factory=dict)
    marks: Mapping[Place, str] = field(default_factory=dict)
    strict: str | None = None

    @property
    def next(self) -> dict[Place, int]:
        """Next offset to read by partition."""
        return {(name, p): offset for name, topic in self.topics.items() for p, offset in enumerate(topic.next)}

    def unread(self, topics: Collection[str], ends: Mapping[Place, int]) -> list[Range]:
        """Return the unread ranges of topics, up to the ends of their partitions."""
        left = [(place, offset) for place, offset in sorted(self.next.items()) if place[0] in topics]
        return [Range(*place, offset, ends[place]) for place, offset in left if ends[place] > offset]

    def trusted_marks(self) -> dict[str, str] | None:
        """Return marks by ``topic/partition``; None if they cannot be trusted."""
        if self.strict:
            return None
        # a partition without events has the lowest mark: the table has none of its keys
        return {f"{topic}/{partition}": self.marks.get((topic, partition), "") for topic, partition in self.next}

    def made_strict(self, reason: str) -> Progress:
        """Return the progress without marks; keep the first reason."""
        return replace(self, strict=self.strict or reason, marks={})

    def read_up_to(self, ends: Mapping[Place, int], orders: Mapping[str, str]) -> Progress:
        """Return the progress after a batch with its ends by partition and highest orders by ``topic/partition``."""
        topics = {
            name: replace(t, next=tuple(ends.get((name, p), offset) for p, offset in enumerate(t.next)))
            for name, t in self.topics.items()
        }
        marks = dict(self.marks)
        if not self.strict:
            read = ((place, orders.get("{}/{}".format(*place))) for place in self.next)
            marks = highest((*marks.items(), *((place, order) for place, order in read if order)))
        return replace(self, topics=topics, marks=marks)


def encode(progress: Progress) -> dict[str, Any]:
    """Return the offsets of a position, without marks if they would be too large."""
    offsets: dict[str, Any] = {
        "epoch": progress.epoch,
        "topics": {name: {"id": t.id, "next": list(t.next)} for name, t in progress.topics.items()},
    }
    if progress.strict:
        return {**offsets, "strict": progress.strict}
    text = "\n".join(progress.marks.get(place, "") for place in sorted(progress.next))
    marks = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    packed = {**offsets, "marks": marks} if progress.marks else offsets
    if len(json.dumps(packed)) > MAX_BYTES - _RESERVED_BYTES:
        return {**offsets, "strict": TOO_MANY}
    return packed


def resume(position: Position) -> Progress:
    """Decode a table's position; raise an :class:`InputError` if it belongs to another source type."""
    if position.source != SOURCE:
        raise InputError(f"It was fed from a source of type {position.source!r}.")
    return decode(position)


def decode(position: Position) -> Progress:
    offsets = position.offsets
    topics = {name: Followed(t["id"], tuple(t["next"])) for name, t in offsets["topics"].items()}
    progress = Progress(int(offsets["epoch"]), topics, {}, offsets.get("strict"))
    if "marks" not in offsets:
        return progress
    orders = zlib.decompress(base64.b64decode(offsets["marks"])).decode().split("\n")
    return replace(progress, marks={p: order for p, order in zip(sorted(progress.next), orders, strict=True) if order})


def unread_partitions(position: Position, moment: datetime) -> list[str]:
    """Return ``topic/partition`` of partitions that may not have been read up to a time; empty for another source."""
    if position.source != SOURCE:
        return []
    progress, milliseconds = decode(position), moment.timestamp() * 1000
    marks = [(place, progress.marks.get(place)) for place in sorted(progress.next)]
    return ["{}/{}".format(*place) for place, mark in marks if mark is None or time_of(mark) <= milliseconds]


def bounded(unread: Sequence[Range], most: int) -> list[Range]:
    """Return the ranges of the next batch: everything unread, or a proportional share of each partition.

    :param most: offsets of the batch; every partition gets at least one.
    """
    total = count(unread)
    if total <= most:
        return [*unread]
    return [replace(r, end=r.start + max(1, (r.end - r.start) * most // total)) for r in unread]


def aligned(unread: Sequence[Range], most: int, offsets_at: Callable[[int], Mapping[Place, int]]) -> list[Range] | None:
    """Return the ranges of the next batch, cut at the same time in all partitions.

    An event may refer to a row that was sent earlier, maybe to another partition (the row of a former key). A cut at
    one time never puts the event into an earlier batch than that row.

    :param most: offsets of the batch; records of one millisecond stay together.
    :param offsets_at: returns the first offset by partition that is not older than a time in milliseconds, or -1.
    :return: None if nothing needs a cut, or the records' timestamps do not allow one.
    """
    if len(unread) < 2 or count(unread) <= most:
        return None

    def until(moment: int) -> list[Range]:
        offsets = offsets_at(moment)
        cut = [replace(r, end=min(offsets[r.place], r.end)) if offsets[r.place] >= 0 else r for r in unread]
        return [r for r in cut if r.end > r.start]

    low, high = 0, _LAST_MOMENT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(until(middle)) <= most else (low, middle)
    return until(low) or until(high) or None
