"""Keys and the bounds of data files: no file with a key is skipped."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.key_search.keys import may_hold, ordered
from lakecdc.key_search.resolve import Resolution
from lakecdc.writer.frame import stage_frame
from tests.conftest import Lake


@given(st.data())
@pytest.mark.parametrize("kind", [st.integers(-20, 20), st.text("aß𝄞", max_size=3)], ids=["integers", "texts"])
def test_a_file_with_a_key_is_searched(kind: st.SearchStrategy[Any], data: st.DataObject) -> None:
    keys, rows = data.draw(st.lists(kind)), data.draw(st.lists(kind, min_size=1))
    # Arrow and Python order strings by code point, as Iceberg does
    ends, values = (min(rows), max(rows)), ordered(pa.chunked_array([pa.array(keys, pa.array(rows).type)]))
    assert values is not None and may_hold(None, values)
    assert may_hold(ends, values) == any(ends[0] <= key <= ends[1] for key in keys)
    if set(keys) & set(rows):
        assert may_hold(ends, values)


def test_dates_are_compared_as_days_and_nulls_match_no_bounds() -> None:
    days = pa.chunked_array([pa.array([datetime.date(1970, 1, 3), datetime.date(1969, 12, 31)])])
    assert ordered(days) == [-1, 2]
    assert ordered(pa.chunked_array([pa.array([1, None])])) is None


def test_a_key_renamed_after_the_snapshot_is_found(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.test.renamed_key (id bigint, v string) USING iceberg")
    lake.sql("INSERT INTO lake.test.renamed_key VALUES (1, 'a'), (2, 'b')")
    lake.sql("ALTER TABLE lake.test.renamed_key RENAME COLUMN id TO k")
    table = lake.table("test.renamed_key")
    resolution = Resolution(table, stage_frame(table, lake.spark.sql("SELECT 2L AS k"), ["k"], 0))
    resolution.search(table.head())
    assert (resolution.searched, resolution.positions) == (1, 1)
    resolution.discard(committed=False)
