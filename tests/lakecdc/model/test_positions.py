"""Positions in the log of a database are decoded and encoded without loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecdc.metadata.positions import Position
from lakecdc.model.positions import BinlogPosition, LsnPosition, Place, log_position

LOAD = {"bound": "'M'", "leading": "f"}


@pytest.mark.parametrize(
    ("source", "offsets", "number"),
    [
        ("postgres", {"lsn": "16/B374D848", "epoch": 2, "oid": 16385}, 0x16B374D848),
        ("postgres", {"lsn": "0/9", "epoch": 1, "oid": 7, "loaded": "0/A", "load": {"xmin": 7}}, 9),
        ("mysql", {"file": "log.000003", "pos": 7, "epoch": 1, "gtid": "0-1-5", "created": 4}, (3 << 32) + 7),
        ("mysql", {"file": "x.1", "pos": 1 << 33, "epoch": 1, "gtid": "", "created": 4, "load": LOAD}, (2 << 32) - 1),
        ("mysql", {"file": "x.1", "pos": 4, "epoch": 1, "gtid": "", "created": 4, "loaded": 5 << 32}, (1 << 32) + 4),
    ],
)
def test_offsets_survive_a_round_trip(source: str, offsets: dict[str, object], number: int) -> None:
    at = log_position(Position(source, "i", offsets))
    assert at is not None and (at.number, at.encode()) == (number, offsets)


def test_positions_of_earlier_releases_are_decoded() -> None:
    assert log_position(Position("postgres", "i", {"lsn": "0/9"})) == LsnPosition(9)
    assert log_position(Position("mysql", "i", {"file": "x.1", "pos": 4})) == BinlogPosition(Place("x.1", 4))
    assert log_position(Position("kafka", "i")) is None is log_position(None)


def test_the_lead_of_a_load_is_dropped_once_the_log_is_applied() -> None:
    at = LsnPosition(5, loaded=9)
    assert (at.ahead, at.encode()["loaded"]) == (9, "0/9")
    assert replace(at, lsn=9).ahead == 0 and "loaded" not in replace(at, lsn=9).encode()
