"""Several jobs in one application: each table proceeds as far as its own steps succeed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from lakecdc.contract.report import JobReport
from lakecdc.contract.spec import parse_spec
from lakecdc.metadata.marked_folders import mark_in
from lakecdc.runtime.run import TABLE_WORK, run, work_of
from tests.conftest import Lake
from tests.lakecdc.maintain.support import count, create, delete_by_key, duckdb_rows, fill, head, live_files

MISSING = "test.not_there"


def govern(lake: Lake, steps: list[dict[str, Any]], *tables: str, **options: Any) -> JobReport:
    return run(parse_spec(lake.spec("govern", *tables, options={"steps": steps, **options})), work_of("govern"))


def outcomes(report: JobReport) -> list[tuple[str | None, str, str]]:
    return [(table.job, table.table, table.outcome) for table in report.tables]


@pytest.fixture
def orders(lake: Lake) -> str:
    """Create a table with small files and equality deletes."""
    name = create(lake, 2)
    fill(lake, name)
    delete_by_key(lake, name, range(0, 500, 50), "new")
    return name


def test_a_failed_step_skips_later_steps_of_its_table_only(
    lake: Lake, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    other = create(lake, 3, columns="id bigint NOT NULL, v string, d int, e int")
    lake.sql(f"INSERT INTO lake.{other} VALUES (1, 'a', 0, 0)")
    beside = create(lake, 2)
    fill(lake, beside)
    rows = duckdb_rows(lake, orders)
    steps: list[dict[str, Any]] = [
        {"job": "rewrite_delete_files"},
        # orders has no such column
        {"job": "sort_data_files", "tables": [orders, other], "options": {"columns": ["e"]}},
        {"job": "compact_data_files", "options": {"side_tables": [beside, "test.not_made_yet"]}},
        {"job": "rewrite_manifests", "tables": [beside]},
    ]
    report = govern(lake, steps, orders, MISSING, other)
    assert outcomes(report) == [
        ("rewrite_delete_files", orders, "done"),
        ("rewrite_delete_files", MISSING, "failed"),
        ("rewrite_delete_files", other, "nothing"),
        ("sort_data_files", orders, "failed"),
        ("sort_data_files", other, "nothing"),
        ("compact_data_files", other, "nothing"),
        ("compact_data_files", beside, "done"),
        ("compact_data_files", orders, "skipped"),
        ("compact_data_files", MISSING, "skipped"),
        ("rewrite_manifests", beside, "nothing"),
    ]
    assert report.exit_code() == 4 and report.error is None and report.spark_application_id
    # each step logs each table once
    logged = Counter(caplog.messages)
    assert [logged[replace(each, job=None).log_line] for each in report.tables] == [1] * len(report.tables)
    reports = {(table.job, table.table): table for table in report.tables}
    assert "sort_data_files failed before: " in str(reports["compact_data_files", orders].reason)
    assert "table does not exist" in str(reports["compact_data_files", MISSING].reason)
    assert reports["rewrite_delete_files", orders].snapshot_after == str(head(lake, orders))
    assert reports["rewrite_delete_files", orders].metrics["core_seconds"] > 0
    assert count(lake, orders, 2) == 0 and count(lake, beside, 0) == 1
    assert duckdb_rows(lake, orders) == rows
    # the folder names the job that wrote a file, as in a run of that job alone
    marks = {mark_in(location) for location in live_files(lake, beside)}
    assert {mark and mark.job for mark in marks} == {"compact_data_files"}


def test_a_dry_run_changes_nothing(lake: Lake, orders: str) -> None:
    before = head(lake, orders)
    steps = [{"job": "rewrite_delete_files"}, {"job": "compact_data_files"}]
    report = govern(lake, steps, orders, dry_run=True)
    assert [table.job for table in report.tables] == [step["job"] for step in steps]
    assert head(lake, orders) == before and report.exit_code() == 0


def test_a_step_that_cannot_start_does_not_stop_the_next_one(
    lake: Lake, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE_WORK, "rebucket", "lakecdc.maintain.not_installed:rebucket")
    other = create(lake, 2)
    fill(lake, other)
    steps: list[dict[str, Any]] = [{"job": "rebucket", "tables": [orders]}, {"job": "compact_data_files"}]
    report = govern(lake, steps, orders, other)
    assert outcomes(report) == [
        ("rebucket", orders, "failed"),
        ("compact_data_files", other, "done"),
        ("compact_data_files", orders, "skipped"),
    ]
    assert "not_installed" in str(report.tables[0].reason)
