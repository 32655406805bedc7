"""The CPU time of an application that feeds several tables at once is shared among them."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.runtime.run import _with_core_seconds


@pytest.mark.parametrize(
    ("metrics", "seconds", "shares"),
    [
        ([{"events_c": 6, "rows_written": 3}, {"events_d": 9}], 8.0, [4.0, 4.0]),
        ([{"core_seconds": 3.0}, {}, {}], 8.0, [3.0, 2.5, 2.5]),
        ([{"core_seconds": 3.0}, {"rows_written": 5}], 2.0, [3.0, 0.0]),
        ([{"core_seconds": 3.0}], 8.0, [3.0]),
        ([], 8.0, []),
    ],
)
def test_tables_share_by_events_and_rows_what_no_table_was_measured_for(
    metrics: list[dict[str, Any]], seconds: float, shares: list[float]
) -> None:
    tables = [TableReport(f"s.t{place}", "done", metrics=facts) for place, facts in enumerate(metrics)]
    assert [table.metrics["core_seconds"] for table in _with_core_seconds(tables, seconds)] == shares
