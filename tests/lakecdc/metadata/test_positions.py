"""Positions are stored in snapshot summaries: they are rolled back with the table and stay small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.metadata import names
from lakecdc.metadata.positions import (
    Carrier,
    Position,
    beside_others,
    current_position,
    decode,
    encode_idle,
    nearest_carrier,
)

POSITION = Position("postgres", "7:1", {"lsn": "0/10"}, "2026-01-01T00:00:00+00:00", "00ff")
LATER = Position("postgres", "7:1", {"lsn": "0/20"}, "2026-01-01T01:00:00+00:00", "00ff")


def test_positions_survive_a_round_trip_with_stable_text() -> None:
    assert decode(POSITION.encode()) == POSITION
    assert POSITION.encode() == decode(POSITION.encode()).encode()


def test_too_large_positions_are_refused() -> None:
    with pytest.raises(InputError, match="a snapshot summary has room"):
        Position("files", "f", {"files": "x" * 9000}).encode()


def test_the_nearest_carrier_skips_maintenance() -> None:
    ancestors = [
        (3, {"operation": "replace"}),
        (2, {names.POSITIONS: POSITION.encode()}),
        (1, {names.POSITIONS: "old"}),
    ]
    carrier = nearest_carrier(ancestors)
    assert carrier is not None and carrier.snapshot_id == 2 and carrier.position == POSITION
    assert nearest_carrier([(1, {})]) is None


def test_an_idle_position_counts_only_after_its_carrier() -> None:
    properties = {names.IDLE_POSITION: encode_idle(2, LATER)}
    assert current_position(Carrier(2, POSITION.encode()), properties) == LATER
    assert current_position(Carrier(1, POSITION.encode()), properties) == POSITION
    assert current_position(None, properties) is None


def test_each_feed_of_a_table_has_its_own_position() -> None:
    alone = Carrier(1, POSITION.encode())
    kafka = Position("kafka", "k", {"topics": {}}, "2026-01-02T00:00:00+00:00")
    both = Carrier(2, beside_others(kafka, "crm", alone, {}).encode())
    assert alone.of("crm") is None and both.of("crm") == both
    assert [(each.snapshot_id, each.position) for each in both.feeds] == [(2, kafka), (1, POSITION)]
    # copied by every later commit, and replaced by those of its own feed
    later = Carrier(3, beside_others(LATER, "", both, {}).encode())
    again = Carrier(4, beside_others(kafka, "crm", later, {}).encode())
    assert [(each.snapshot_id, each.position) for each in again.feeds] == [(4, kafka), (3, LATER)]
    assert again.position.table_through == LATER.read_through


def test_a_quiet_feed_keeps_its_position_while_others_commit() -> None:
    alone = Carrier(1, POSITION.encode())
    kafka = Position("kafka", "k", {"topics": {}}, "2026-01-01T00:30:00+00:00")
    both = Carrier(2, beside_others(kafka, "crm", alone, {}).encode())
    quiet = {names.IDLE_POSITION: encode_idle(1, LATER)}
    assert current_position(both, quiet, "") == LATER
    assert current_position(both, quiet, "crm") == kafka
    whole = current_position(both, quiet)
    assert whole is not None and (whole.source, whole.read_through) == ("kafka", kafka.read_through)
    # snapshots record the positions of quiet feeds
    later = Carrier(3, beside_others(replace(kafka, read_through=LATER.read_through), "crm", both, quiet).encode())
    assert later.position.table_through == LATER.read_through and later.feeds[1].snapshot_id == 1
    # the property of another commit of the feed is ignored
    assert current_position(both, {names.of_feed(names.IDLE_POSITION, "crm"): encode_idle(1, LATER)}, "crm") == kafka
