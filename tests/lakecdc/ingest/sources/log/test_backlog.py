"""A table applies the parked rounds that continue its position without a gap."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from lakecdc.ingest.sources.log.backlog import Backlog
from lakecdc.ingest.sources.log.parking import Parked
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import lsn_text


def parked(since: int, through: int, identity: str = "a") -> Parked:
    return Parked(through, datetime(2026, 1, 1, tzinfo=UTC), identity, 7, {}, {"lsn": lsn_text(through)}, since)


@pytest.mark.parametrize(
    ("at", "rounds", "usable", "forgotten"),
    [
        (3, [parked(3, 5), parked(5, 9)], [5, 9], None),
        (5, [parked(3, 5), parked(5, 9)], [9], 5),
        (9, [parked(3, 5), parked(5, 9)], [], 9),
        # rolled back to before the first of them began
        (2, [parked(3, 5), parked(5, 9)], [], None),
        (4, [parked(3, 5), parked(5, 9)], [], None),
        (3, [parked(3, 5), parked(5, 9, "b")], [5], None),
        (None, [parked(3, 5), parked(5, 9)], [], 9),
    ],
)
def test_a_table_applies_rounds_that_continue_its_position(
    at: int | None, rounds: list[Parked], usable: list[int], forgotten: int | None
) -> None:
    spark: Any = None
    backlog: Backlog[Any] = Backlog(spark, "lake")
    position = Position("postgres", "a", {"lsn": lsn_text(at)}) if at else None
    assert [p.through for p in backlog._usable("shop.t", position, rounds, "a")] == usable
    assert backlog._settled.get("shop.t") == forgotten


def test_a_parked_round_is_read_as_it_was_written() -> None:
    assert msgspec.json.decode(msgspec.json.encode(parked(3, 5)), type=Parked) == parked(3, 5)
