"""Cuts between the old and the other files of a table."""

from __future__ import annotations

import random

import pytest

from lakecdc.maintain.time_ranges import FileTimes, between_files, moment_of, through_files, time_of, unit_of

DAY = 86_400_000_000


def file(first: float | None, last: float | None = None, nulls: bool = False) -> FileTimes:
    """Describe a file with this time range, in days since 1970."""
    last = first if last is None else last
    return FileTimes(
        10, 100, None if first is None else int(first * DAY), None if last is None else int(last * DAY), nulls
    )


def test_whole_files_are_cut_off_oldest_first() -> None:
    files = [file(day, day + 0.9) for day in (3, 1, 9, 2, 5, 2)]
    cut = between_files(files, 5 * DAY, "day", 9)
    assert (cut.below, len(cut.whole), cut.mixed, cut.partitions, cut.left) == (5 * DAY, 4, (), 3, 0)
    # two buckets of one day count as one partition
    cut = between_files(files, 5 * DAY, "day", 2)
    assert (cut.below, len(cut.whole), cut.mixed, cut.partitions, cut.left) == (3 * DAY, 3, (), 2, 1)
    assert between_files(files, DAY, "day", 9).below is None


def test_files_across_the_cutoff_stay_with_all_that_overlap_them() -> None:
    cut = between_files([file(1, 1.5), file(2.5, 3.5), file(3.2, 6)], 5 * DAY, "day", 9)
    # rows on the day of the first remaining file are not older than that file
    assert (cut.below, len(cut.whole), len(cut.mixed)) == (2 * DAY, 1, 2)
    cut = between_files([file(1, 2.1), file(2.5, 6)], 5 * DAY, "day", 9)
    assert (cut.below, len(cut.whole), len(cut.mixed)) == (int(2.5 * DAY), 1, 1)


@pytest.mark.parametrize("odd", [file(1, 2, nulls=True), file(None), FileTimes(1, 1, 0, None)])
def test_files_with_unknown_bounds_are_not_separated(odd: FileTimes) -> None:
    cut = between_files([odd, file(3)], 5 * DAY, "day", 9)
    assert (cut.below, cut.whole, len(cut.mixed)) == (None, (), 2)


def test_an_inseparable_partition_may_exceed_the_limit() -> None:
    cut = between_files([file(1, 2.5), file(2.1, 3), file(4)], 9 * DAY, "day", 1)
    assert (cut.below, len(cut.whole), cut.partitions, cut.left) == (4 * DAY, 2, 2, 1)


def test_a_cut_may_go_through_files() -> None:
    files = [file(1), file(2, 7), file(3, 4, nulls=True), file(8)]
    cut = through_files(files, 5 * DAY, "day", 9)
    assert (cut.below, len(cut.whole), len(cut.mixed), cut.partitions, cut.left) == (5 * DAY, 1, 2, 3, 0)
    cut = through_files(files, 5 * DAY, "day", 2)
    assert (cut.below, len(cut.whole), len(cut.mixed), cut.partitions, cut.left) == (3 * DAY, 1, 1, 2, 1)
    assert through_files(files, DAY, "day", 2).below is None


def test_no_remaining_row_is_below_the_cut() -> None:
    rng = random.Random(1)
    for _ in range(500):
        files = []
        for _ in range(rng.randrange(1, 9)):
            first = rng.randrange(20)
            files.append(file(first / 2, (first + rng.choice([0, 0, 1, 5])) / 2, rng.random() < 0.1))
        cutoff, most = rng.randrange(12) * DAY, rng.randrange(1, 5)
        cut = between_files(files, cutoff, "day", most)
        assert cut.below is None or cut.below <= cutoff
        for each in files:
            goes = cut.below is not None and each.last < cut.below
            assert goes == (each in cut.whole)
            assert goes or cut.below is None or each.first >= cut.below
        through = through_files(files, cutoff, "day", most)
        assert through.below is None or through.below <= cutoff
        assert not set(through.whole) & set(through.mixed)


def test_units_begin_at_partition_boundaries() -> None:
    time = time_of(moment_of(int(400.77 * DAY)))
    assert [moment_of(unit_of(time, unit)).isoformat() for unit in ("hour", "day", "month", "year")] == [
        "1971-02-05T18:00:00+00:00",
        "1971-02-05T00:00:00+00:00",
        "1971-02-01T00:00:00+00:00",
        "1971-01-01T00:00:00+00:00",
    ]
    assert moment_of(-(2**62)).year == 1 and moment_of(2**62).year == 9999
