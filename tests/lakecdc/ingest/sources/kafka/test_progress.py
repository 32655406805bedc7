"""Positions in topics: what they record, which marks are dropped, how a batch is bounded. No server needed."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from lakecdc.ingest.sources.kafka import progress as stored_progress
from lakecdc.ingest.sources.kafka.cluster import Range, split
from lakecdc.ingest.sources.kafka.progress import Followed, Progress, aligned, bounded
from lakecdc.ingest.sources.kafka.source import is_keyed_by
from lakecdc.metadata.positions import MAX_BYTES, Position
from lakecdc.metadata.positions import decode as decode_position
from lakecdc.model.order import order_key


def position(progress: Progress) -> Position:
    return Position(
        "kafka", "topic-ids", stored_progress.encode(progress), "2026-01-01T00:00:00+00:00", order_key(1, 2**40)
    )


def of(partitions: int, topic: str = "pg.shop.orders") -> Progress:
    rng = random.Random(1)
    marks = {(topic, p): order_key(1, 10**9 + rng.randrange(10**6), rng.randrange(99)) for p in range(partitions)}
    return Progress(1, {topic: Followed("id", tuple(range(partitions)))}, marks)


@pytest.mark.parametrize("partitions", [1, 3, 100])
def test_a_position_keeps_the_progress(partitions: int) -> None:
    progress = of(partitions)
    again = stored_progress.decode(decode_position(position(progress).encode()))
    assert again == progress
    assert again.trusted_marks() == {f"pg.shop.orders/{p}": order for (_, p), order in progress.marks.items()}


def test_marks_beyond_the_size_limit_are_dropped_and_reported() -> None:
    text = position(of(900)).encode()
    assert len(text) <= MAX_BYTES
    again = stored_progress.decode(decode_position(text))
    assert again.trusted_marks() is None and again.strict == stored_progress.TOO_MANY
    assert again.next == of(900).next


def test_a_partition_that_fed_nothing_is_never_late() -> None:
    progress = Progress(1, {"t": Followed("id", (5, 0))}, {("t", 0): "b"})
    assert progress.trusted_marks() == {"t/0": "b", "t/1": ""}
    after = progress.read_up_to({("t", 0): 9, ("t", 1): 2}, {"t/0": "a", "t/1": "c"})
    assert (after.next, after.marks) == ({("t", 0): 9, ("t", 1): 2}, {("t", 0): "b", ("t", 1): "c"})
    strict = after.made_strict("why").made_strict("another")
    assert strict.strict == "why" and strict.trusted_marks() is None
    assert stored_progress.decode(position(strict)) == strict


def test_a_truncate_among_the_offsets_is_read() -> None:
    now = replace(position(of(2)), truncate_order=order_key(1, 2**40))
    before = replace(now, offsets={**now.offsets, "truncated": now.truncate_order}, truncate_order=None)
    assert decode_position(before.encode()) == now == decode_position(now.encode())


def test_batches_divide_the_remaining_offsets() -> None:
    progress = Progress(1, {"t": Followed("id", (0, 10, 7)), "another": Followed("id", (0,))})
    ends = {("t", 0): 100, ("t", 1): 20, ("t", 2): 7, ("another", 0): 9}
    unread = progress.unread(["t"], ends)
    assert bounded(unread, 1000) == unread == [Range("t", 0, 0, 100), Range("t", 1, 10, 20)]
    assert bounded(unread, 22) == [Range("t", 0, 0, 20), Range("t", 1, 10, 12)]
    assert bounded(unread, 1) == [Range("t", 0, 0, 1), Range("t", 1, 10, 11)]


def test_pieces_cover_ranges_once() -> None:
    ranges = [Range("t", 0, 5, 100_005), Range("t", 1, 0, 3)]
    pieces = split(ranges, 4)
    assert [p for p in pieces if p.partition == 1] == [ranges[1]]
    cut = [p for p in pieces if p.partition == 0]
    assert len(cut) == 4 and (cut[0].start, cut[-1].end) == (5, 100_005)
    assert all(a.end == b.start for a, b in zip(cut, cut[1:], strict=False))
    assert len(split([Range("t", 0, 0, 1000)], 8)) == 1


@pytest.mark.parametrize(
    ("key", "value", "keyed"),
    [
        ({"id": 1}, {"op": "c"}, True),
        ({"schema": {}, "payload": {"id": 1}}, {"op": "c"}, True),
        ({"id": 1, "region": 2}, {"op": "c"}, False),
        (None, {"op": "c"}, False),
        (None, {"op": "t"}, True),
        (None, {"schema": {}, "payload": {"op": "t"}}, True),
        (7, {"op": "c"}, False),
    ],
)
def test_records_keyed_by_the_table_are_recognized(key: object, value: object, keyed: bool) -> None:
    raw = None if key is None else json.dumps(key).encode()
    assert is_keyed_by(("id",), [(raw, json.dumps(value).encode(), None)]) is keyed


def test_a_batch_ends_at_one_moment_of_all_partitions() -> None:
    times = {("t", 0): [10, 20, 30, 40], ("t", 1): [11, 12, 13, 14], ("t", 2): []}

    def offsets_at(moment: int) -> dict[tuple[str, int], int]:
        return {p: next((i for i, t in enumerate(moments) if t >= moment), -1) for p, moments in times.items()}

    unread = [Range("t", 0, 0, 4), Range("t", 1, 0, 4)]
    assert aligned(unread, 5, offsets_at) == [Range("t", 0, 0, 1), Range("t", 1, 0, 4)]
    assert aligned(unread, 2, offsets_at) == [Range("t", 0, 0, 1), Range("t", 1, 0, 1)]
    assert aligned(unread[:1], 2, offsets_at) is None, "one partition needs no moment"
    assert aligned(unread, 8, offsets_at) is None, "all fits"
    times[("t", 0)] = times[("t", 1)] = [7, 7, 7, 7]
    assert aligned(unread, 3, offsets_at) == unread, "one millisecond"
