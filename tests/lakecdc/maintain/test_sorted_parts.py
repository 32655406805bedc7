"""Rows sorted part by part equal one sort of all rows, whatever the parts and the memory are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.maintain.sorted_parts import SortedParts
from tests.lakecdc.maintain.test_run_order import ordered_rows
from tests.lakecdc.maintain.test_sorted_runs import CALM, COUNTS, MEMORY


@settings(max_examples=60, deadline=None, suppress_health_check=CALM)
@given(ordered_rows(COUNTS), st.lists(COUNTS, max_size=20), st.integers(1, 9), MEMORY, st.integers(1, 5000))
def test_sorted_parts_equal_one_stable_sort(
    tmp_path: Path, case: tuple[RunOrder, pa.Table], bounds: list[int], parts: int, memory: int, table_bytes: int
) -> None:
    order, rows = case
    ends = [0, *sorted(bound for bound in bounds if bound < rows.num_rows), rows.num_rows]
    with SortedParts(order, order.cuts(rows, parts), memory, str(tmp_path)) as sorted_parts:
        for begin, end in zip(ends, ends[1:], strict=False):
            sorted_parts.add(order.sorted(rows.slice(begin, end - begin)))
        numbers = [number for table in sorted_parts.sorted(table_bytes) for number in table["n"].to_pylist()]
    assert numbers == order.sorted(rows)["n"].to_pylist()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory", [2_000, 1 << 20])
def test_rows_beyond_the_memory_are_in_files(tmp_path: Path, memory: int) -> None:
    order = RunOrder((RunField("n"),))
    with SortedParts(order, [(1, 500), (1, 1500)], memory, str(tmp_path)) as sorted_parts:
        for begin in range(20):
            sorted_parts.add(pa.table({"n": list(range(begin, 2000, 20))}))
        assert bool(list(tmp_path.glob("*/*"))) == (memory == 2_000)
        tables = list(sorted_parts.sorted(1 << 20))
    assert [table.num_rows for table in tables] == [500, 1000, 500]
    assert pa.concat_tables(tables)["n"].to_pylist() == list(range(2000))
