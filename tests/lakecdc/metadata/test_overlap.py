"""Overlap depth and overlapping groups."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from lakecdc.metadata.overlap import (
    ColumnBounds,
    KeyRange,
    lexicographic_ends,
    lies_behind,
    overlap_depth,
    overlapping_groups,
    runs_between,
)


def ranges(*ends: tuple[object, object], rows: int = 10) -> list[KeyRange]:
    """Return ranges of files with the same number of rows."""
    return [KeyRange(lower, upper, rows) for lower, upper in ends]


@pytest.mark.parametrize(
    ("files", "depth"),
    [
        (ranges(), 1.0),
        (ranges((1, 9)), 1.0),
        (ranges((1, 3), (4, 6), (7, 9)), 1.0),
        (ranges((1, 3), (3, 6), (6, 9)), 1.0),
        (ranges((1, 9), (1, 9), (1, 9)), 3.0),
        (ranges(("a", "m"), ("m", "z"), ("a", "z")), 2.0),
        (ranges((7, 7), (7, 7)), 1.0),
        (ranges((None, None), (None, None)), 2.0),
    ],
)
def test_depth_counts_files_per_key(files: list[KeyRange], depth: float) -> None:
    assert overlap_depth(files) == pytest.approx(depth)


def test_depth_is_weighted_by_rows() -> None:
    large, small = KeyRange(0, 100, 1000), KeyRange(100, 101, 2)
    assert overlap_depth([large, small, KeyRange(100, 101, 2)]) == pytest.approx(1.004, abs=0.001)


def test_a_file_without_bounds_overlaps_all_others() -> None:
    assert overlap_depth([*ranges((1, 3), (4, 6)), KeyRange(None, None, 20)]) == pytest.approx(2.5)
    assert overlapping_groups([*ranges((1, 3), (4, 6)), KeyRange(None, None, 1)]) == [[0, 1, 2]]


def test_overlapping_files_are_grouped() -> None:
    files = ranges((50, 60), (1, 10), (5, 20), (20, 30), (55, 70), (90, 99))
    assert overlapping_groups(files) == [[1, 2], [0, 4]]
    assert overlapping_groups(ranges((None, None))) == []


def test_files_outside_groups_never_overlap_anything() -> None:
    dice = random.Random(4)
    for _ in range(200):
        files = [KeyRange(low, low + dice.randrange(20), 1) for low in (dice.randrange(100) for _ in range(12))]
        grouped = {index for group in overlapping_groups(files) for index in group}
        for alone in set(range(12)) - grouped:
            for other in set(range(12)) - {alone}:
                assert files[alone].upper <= files[other].lower or files[other].upper <= files[alone].lower


def test_runs_are_cut_where_another_file_has_keys_between() -> None:
    files = ranges((0, 9), (20, 29), (5, 12), (40, 49))
    assert runs_between(files, []) == [[0, 2, 1, 3]]
    assert runs_between(files, ranges((13, 15))) == [[0, 2], [1, 3]]
    assert runs_between(files, ranges((10, 60))) == [[0, 2], [1], [3]]
    assert runs_between(files, ranges((3, 12), (20, 29), (50, 60))) == [[0, 2, 1, 3]]
    assert runs_between([*files, KeyRange(None, None, 1)], ranges((13, 15))) == [[0, 1, 2, 3, 4]]
    assert runs_between([], ranges((1, 2))) == []


def test_runs_are_cut_in_exactly_these_gaps() -> None:
    dice = random.Random(9)
    for _ in range(500):
        chosen, others = (
            [
                KeyRange(low, low + dice.randrange(12), 1)
                for low in (dice.randrange(100) for _ in range(dice.randrange(9)))
            ]
            for _ in range(2)
        )
        runs = runs_between(chosen, others)
        assert sorted(index for run in runs for index in run) == list(range(len(chosen)))
        for before, after in pairwise(runs):
            end, begin = max(chosen[i].upper for i in before), min(chosen[i].lower for i in after)
            assert end < begin and any(r.lower < begin and r.upper > end for r in others)
        for run in runs:
            for nth, begin in enumerate(sorted(chosen[i].lower for i in run)[1:], start=1):
                end = max(sorted((chosen[i].lower, chosen[i].upper) for i in run)[:nth], key=lambda ends: ends[1])[1]
                assert end >= begin or not any(r.lower < begin and r.upper > end for r in others)


def of_columns(*columns: tuple[object, object]) -> KeyRange:
    """Return a file of ten rows with these bounds of the sort columns."""
    return KeyRange(*lexicographic_ends([ColumnBounds(*bounds) for bounds in columns]), 10)


def test_the_second_column_counts_where_the_first_has_one_value() -> None:
    layers = [of_columns((1, 1), ("a", "m")), of_columns((1, 1), ("k", "z")), of_columns((2, 2), ("a", "z"))]
    assert overlapping_groups(layers) == [[0, 1]]
    assert overlap_depth(layers) > 1.1
    assert overlap_depth([of_columns((1, 1), ("a", "j")), *layers[1:]]) == 1.0


def test_neighbours_that_share_a_value_of_the_first_column_do_not_overlap() -> None:
    files = [of_columns((1, 2), (0, 9)), of_columns((2, 2), (3, 5)), of_columns((2, 3), (0, 9))]
    assert overlapping_groups(files) == [] and overlap_depth(files) == 1.0
    assert overlapping_groups([*files, of_columns((1, 3), (4, 4))]) == [[0, 3, 1, 2]]


def test_nulls_and_unknown_bounds_of_a_column_overlap() -> None:
    nulls = ColumnBounds(only_nulls=True)
    assert lexicographic_ends([ColumnBounds(), ColumnBounds(1, 2)]) == (None, None)
    low, high = lexicographic_ends([ColumnBounds(1, 1), ColumnBounds()])
    assert low == high
    ends = [lexicographic_ends([ColumnBounds(1, 1), second]) for second in (nulls, ColumnBounds(0, 0))]
    assert ends[0] < ends[1]
    assert lexicographic_ends([nulls, ColumnBounds(1, 5)])[1] < lexicographic_ends([ColumnBounds(0, 5)])[0]


def test_a_file_follows_another_only_if_all_of_its_rows_do() -> None:
    files = [
        of_columns((1, 2), (0, 9)),
        of_columns((2, 2), (3, 5)),
        of_columns((2, 2), (6, 9)),
        of_columns((3, 4), (0, 1)),
    ]
    behind = [[lies_behind(left.upper, right.lower) for right in files] for left in files]
    assert behind == [
        [False, False, False, True],
        [False, False, True, True],
        [False, False, False, True],
        [False, False, False, False],
    ]


def test_files_of_a_sorted_table_never_overlap() -> None:
    dice = random.Random(6)
    for _ in range(300):
        rows = sorted(tuple(dice.randrange(4) for _ in range(3)) for _ in range(60))
        cuts = sorted({0, 60, *(dice.randrange(60) for _ in range(6))})
        # files begin where the key changes
        cuts = [c for c in cuts if c in (0, 60) or rows[c - 1] != rows[c]]
        files = [of_columns(*((min(c), max(c)) for c in zip(*rows[a:b], strict=True))) for a, b in pairwise(cuts)]
        assert overlapping_groups(files) == []
        assert overlap_depth(files) == 1.0
