"""Positions live in summaries: they rewind with a rollback and stay small."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.metadata import names
from lakecdc.metadata.positions import Carrier, Position, current_position, decode, encode_idle, nearest_carrier

POSITION = Position("postgres", "7:1", {"lsn": "0/10"}, "2026-01-01T00:00:00+00:00", "00ff")
LATER = Position("postgres", "7:1", {"lsn": "0/20"}, "2026-01-01T01:00:00+00:00", "00ff")


def test_round_trip_and_stable_text() -> None:
    assert decode(POSITION.encode()) == POSITION
    assert POSITION.encode() == decode(POSITION.encode()).encode()


def test_too_large_is_refused() -> None:
    with pytest.raises(InputError, match="a snapshot summary has room"):
        Position("files", "f", {"files": "x" * 9000}).encode()


def test_nearest_carrier_skips_maintenance() -> None:
    ancestors = [
        (3, {"operation": "replace"}),
        (2, {names.POSITIONS: POSITION.encode()}),
        (1, {names.POSITIONS: "old"}),
    ]
    found = nearest_carrier(ancestors)
    assert found is not None and found.snapshot_id == 2 and found.position == POSITION
    assert nearest_carrier([(1, {})]) is None


def test_idle_position_counts_only_after_its_carrier() -> None:
    properties = {names.IDLE_POSITION: encode_idle(2, LATER)}
    assert current_position(Carrier(2, POSITION.encode()), properties) == LATER
    assert current_position(Carrier(1, POSITION.encode()), properties) == POSITION
    assert current_position(None, properties) is None
