"""Keys that tasks compare, and keys in parts, without Spark."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.iceberg.live_deletes import EqualityDelete
from lakecdc.key_search.keys import key_ranges
from lakecdc.key_search.tasks import rows_among

# few values of each type, so that many are equal
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-1, 0, 2**40, None],
    pa.string(): ["", "a", "é", None],
    pa.binary(): [b"", b"\x00", b"\xff", None],
    pa.binary(2): [b"\x00\xff", b"ab", None],
    pa.decimal128(12, 2): [Decimal("1.50"), Decimal("-1.50"), None],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), None],
    pa.timestamp("us", "UTC"): [-1, 1, None],
    pa.timestamp("ns"): [-1, 1, None],
    pa.time64("us"): [0, 86_399_999_999, None],
    pa.bool_(): [True, False, None],
}


@given(st.data())
def test_a_row_has_a_key_if_all_its_values_are_equal_and_null_equals_null(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    one = st.tuples(*[st.sampled_from(VALUES[kind]) for kind in kinds])
    rows, keys = data.draw(st.lists(one, max_size=30)), data.draw(st.lists(one, min_size=1, max_size=20))

    def columns(values: list[tuple[Any, ...]]) -> list[pa.ChunkedArray]:
        half = len(values) // 2
        parts = values[:half], values[half:]
        return [
            pa.chunked_array([pa.array([value[place] for value in part], kind) for part in parts])
            for place, kind in enumerate(kinds)
        ]

    names = [f"d{place}" for place in range(len(kinds))]
    found = rows_among(columns(rows), pa.table(dict(zip(names, columns(keys), strict=True))))
    assert found.tolist() == [place for place, row in enumerate(rows) if row in keys]


@pytest.mark.parametrize("most", [1, 4, 5, 100])
def test_each_key_is_in_one_part(most: int) -> None:
    sizes = [3, 0, 5, 12, 1]
    deletes = [EqualityDelete(None, 0, f"f{place}", 0, None, 1, size, (1,)) for place, size in enumerate(sizes)]
    parts = list(key_ranges(deletes, most))
    ranges = [(delete.location, begin, end) for part in parts for delete, begin, end in part]
    for delete in deletes:
        (first, *_), *rest = of_file = [(begin, end) for name, begin, end in ranges if name == delete.location]
        # what the file holds beyond its count is read too
        assert first == 0 and of_file[-1][1] is None
        assert all(before[1] == after[0] for before, after in itertools.pairwise(of_file))
        assert len(rest) <= delete.records
    counts = [sum((d.records if end is None else end) - begin for d, begin, end in part) for part in parts]
    assert sum(counts) == sum(sizes) and max(counts) <= most and counts[:-1] == [most] * (len(counts) - 1)
