"""Sorted runs that are spilled and merged equal one sort of all rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.maintain.sorted_runs import Runs
from tests.lakecdc.maintain.test_run_order import ordered_rows

COUNTS, MEMORY = st.integers(0, 150), st.sampled_from([0, 500, 2000, 1 << 20])
CALM = [HealthCheck.function_scoped_fixture, HealthCheck.data_too_large, HealthCheck.large_base_example]


def merged(runs: Runs, pieces: list[pa.Table], table_bytes: int) -> list[int]:
    """Return the numbers of all rows, in the order of the merged runs."""
    with runs:
        for piece in pieces:
            runs.add(piece)
        return [number for table in runs.merged(table_bytes) for number in table["n"].to_pylist()]


@settings(max_examples=60, deadline=None, suppress_health_check=CALM)
@given(ordered_rows(COUNTS), st.lists(COUNTS, max_size=20), MEMORY, st.integers(1, 900))
def test_merged_runs_equal_one_stable_sort(
    tmp_path: Path, case: tuple[RunOrder, pa.Table], bounds: list[int], memory: int, block: int
) -> None:
    order, rows = case
    ends = [0, *sorted(bound for bound in bounds if bound < rows.num_rows), rows.num_rows]
    pieces = [order.sorted(rows.slice(a, b - a)) for a, b in zip(ends, ends[1:], strict=False)]
    assert merged(Runs(order, memory, str(tmp_path), block), pieces, 1000) == order.sorted(rows)["n"].to_pylist()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory", [100, 1 << 20])
def test_runs_without_an_order_are_unchanged(tmp_path: Path, memory: int) -> None:
    pieces = [pa.table({"n": [3, 1, 2]}), pa.table({"n": [9, 0]}), pa.table({"n": [5] * 40})]
    assert merged(Runs(RunOrder(), memory, str(tmp_path)), pieces, 1) == [3, 1, 2, 9, 0, *[5] * 40]


def test_files_are_merged_in_rounds_and_removed(tmp_path: Path) -> None:
    order = RunOrder((RunField("n", descending=True),))
    with Runs(order, 256, str(tmp_path)) as runs:
        for begin in range(0, 2000, 10):
            runs.add(pa.table({"n": list(range(begin + 9, begin - 1, -1))}))
        assert len(list(tmp_path.glob("*/*"))) > 100
        tables = runs.merged(800)
        assert next(tables)["n"].to_pylist()[:100] == list(range(1999, 1899, -1))
        assert len(list(tmp_path.glob("*/*"))) <= 4
    assert list(tmp_path.iterdir()) == []
