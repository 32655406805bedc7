"""Rows sorted part by part equal one sort of all rows, whatever the parts and the memory are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.maintain.sorted_parts import SortedParts
from tests.lakecdc.maintain.test_run_order import ordered_rows

COUNTS, MEMORY = st.integers(0, 150), st.sampled_from([0, 500, 2000, 1 << 20])
CALM = [HealthCheck.function_scoped_fixture, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=100, deadline=None, suppress_health_check=CALM)
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
    assert memory == 2_000 or [table.num_rows for table in tables] == [500, 1000, 500]
    assert pa.concat_tables(tables)["n"].to_pylist() == list(range(2000))


def test_a_part_beyond_the_memory_is_divided_and_equal_rows_keep_their_order(tmp_path: Path) -> None:
    order = RunOrder((RunField("n", descending=True),))
    with SortedParts(order, [], 30_000, str(tmp_path)) as sorted_parts:
        for piece in range(100):
            numbers = [*range(piece, 0, -1), *[0] * 100]
            sorted_parts.add(pa.table({"n": numbers, "piece": [piece] * len(numbers)}))
        tables = list(sorted_parts.sorted(4_000))
        assert len(list(tmp_path.glob("*/*"))) > 3
    assert list(tmp_path.iterdir()) == []
    rows = pa.concat_tables(tables)
    pieces = [[piece for piece in range(100) if piece >= number] for number in range(99, 0, -1)]
    assert rows["n"].to_pylist() == [
        *(99 - place for place, of_key in enumerate(pieces) for _ in of_key),
        *[0] * 10_000,
    ]
    assert rows["piece"].to_pylist()[:4950] == [piece for of_key in pieces for piece in of_key]
    assert rows["piece"].to_pylist()[4950:] == sorted(rows["piece"].to_pylist()[4950:])
    assert max(table.nbytes for table in tables) < 6_000
