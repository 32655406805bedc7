"""Every row is read once, in order, and the files of a unit get equal shares."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.maintain.rewriting.ranges import ranges_of, readers_of
from lakecdc.maintain.selection import Unit
from lakecdc.metadata.file_facts import FileFacts


def file_of(number: int, rows: int, bytes_: int, deleted: int) -> FileFacts:
    return FileFacts(f"f{number}", 0, "", bytes_, bytes_, rows, min(deleted, rows))


FILES = st.lists(
    st.tuples(st.integers(1, 10_000), st.integers(1, 10**6), st.integers(0, 10_000)), min_size=1, max_size=9
)
UNITS = st.lists(st.tuples(FILES, st.integers(1, 7)), min_size=1, max_size=3)


@given(UNITS, st.booleans())
def test_each_row_is_read_once_in_order(
    given_units: list[tuple[list[tuple[int, int, int]], int]], in_order: bool
) -> None:
    units = [Unit(tuple(file_of(n, *facts) for n, facts in enumerate(files)), count) for files, count in given_units]
    ranges = list(ranges_of(units, in_order=in_order))
    first = 0
    for number, unit in enumerate(units):
        mine = [one for one in ranges if one.unit == number]
        assert [one.output for one in mine] == sorted(one.output for one in mine)
        assert {one.output for one in mine} <= set(range(first, first + (unit.outputs if in_order else 1)))
        ends = Counter[str]()
        for one in mine:
            assert one.first == ends[one.file.location] and one.last > one.first
            ends[one.file.location] = one.last
        assert ends == Counter({file.location: file.rows for file in unit.files})
        first += unit.outputs


def test_files_get_equal_shares_of_live_rows() -> None:
    unit = Unit((file_of(0, 1000, 8000, 500), file_of(1, 4000, 8000, 0)), 3)
    shares = [(one.output, one.file.location, one.first, one.last) for one in ranges_of([unit], in_order=True)]
    # half of the first file's bytes are live: each of three files gets 4,000 bytes
    assert shares == [(0, "f0", 0, 1000), (1, "f1", 0, 2000), (2, "f1", 2000, 4000)]


@pytest.mark.parametrize(
    ("gigabytes", "files", "cores", "readers"),
    [(0.1, 1, 2, 1), (0.1, 9, 2, 2), (2.2, 16, 2, 2), (3.6, 16, 2, 4), (2.2, 16, 1, 2), (0.3, 9, 4, 4)],
)
def test_all_cores_read_a_unit_the_same_number_of_times(gigabytes: float, files: int, cores: int, readers: int) -> None:
    unit = Unit((file_of(0, 1000, round(gigabytes * 10**9), 0),), files)
    assert readers_of(unit, files, cores) == readers
