"""The intervals read so far, and the high-water mark below the first gap."""

from __future__ import annotations

from lakecdc.ingest.sources.jdbc.source import BEGINNING, read_through, with_range


def test_adjacent_ranges_are_joined() -> None:
    assert with_range([("b", "c"), ("e", "f")], ("c", "e")) == [("b", "f")]
    assert with_range([("b", "c")], ("d", "e")) == [("b", "c"), ("d", "e")]
    assert with_range([("b", "e")], ("c", "d")) == [("b", "e")]
    assert with_range([("b", "c")], (BEGINNING, "b")) == [(BEGINNING, "c")]


def test_a_gap_holds_the_high_water_mark_until_filled() -> None:
    ranges = with_range([("b", "c")], ("d", "e"))
    assert read_through(ranges, "c", ("d", "e")) == "c"
    assert read_through(with_range(ranges, ("c", "d")), "c", ("c", "d")) == "e"


def test_an_older_interval_does_not_lower_the_high_water_mark() -> None:
    assert read_through(with_range([("d", "e")], ("a", "b")), "e", ("a", "b")) == "e"
    assert read_through([("a", "b")], None, ("a", "b")) == "b"


def test_only_the_newest_of_many_ranges_are_kept() -> None:
    ranges: list[tuple[str, str]] = []
    for number in range(0, 200, 2):
        ranges = with_range(ranges, (f"{number:03}", f"{number + 1:03}"))
    assert len(ranges) == 40 and ranges[-1] == ("198", "199")
