"""The CPU time of an application that feeds several tables at once is shared among them."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.iceberg.core_time import CoreTime
from lakecdc.runtime.run import _with_core_seconds


def measured(seconds: float) -> Any:
    core_time = Mock(CoreTime)
    core_time.seconds.return_value = seconds
    return core_time


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
    assert [table.metrics["core_seconds"] for table in _with_core_seconds(tables, measured(seconds))] == shares


def test_skipped_tables_have_no_share() -> None:
    tables = [TableReport("s.a", "failed"), TableReport("s.b", "skipped")]
    assert [table.metrics for table in _with_core_seconds(tables, measured(8.0))] == [{"core_seconds": 8.0}, {}]


def test_a_stopped_application_keeps_its_reports() -> None:
    core_time = Mock(CoreTime)
    core_time.seconds.side_effect = AttributeError("'NoneType' object has no attribute 'nextStageId'")
    tables = [TableReport("s.a", "done")]
    assert _with_core_seconds(tables, core_time) == tables
