"""Exit codes follow from the report; reports survive a round trip through JSON."""

from __future__ import annotations

import json
import logging

import pytest

from lakecdc.contract.errors import ConflictError, InputError, LakecdcError
from lakecdc.contract.report import JobReport, TableReport, log_tables, parse_report


def report(*tables: TableReport, **rest: str) -> JobReport:
    return JobReport("ingest", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:01+00:00", tables=tables, **rest)  # type: ignore[arg-type]


FINE = TableReport("a.a", "done")
CONFLICT = TableReport.failure("a.b", ConflictError("too late"))
BAD = TableReport.failure("a.c", InputError("no key", table="a.c", hint="Add one."))
OTHER = TableReport.failure("a.d", RuntimeError("boom\nlong trace"))


@pytest.mark.parametrize(
    ("tables", "code"),
    [((FINE,), 0), ((FINE, CONFLICT), 3), ((CONFLICT, BAD), 4), ((CONFLICT, BAD, OTHER), 1), ((), 0)],
)
def test_exit_code(tables: tuple[TableReport, ...], code: int) -> None:
    assert report(*tables).exit_code() == code


def test_the_holder_of_a_lease_is_a_metric() -> None:
    failure = TableReport.failure("a.a", ConflictError("held", lease_holder="a job"), metrics={"commits": 0})
    assert failure.metrics == {"commits": 0, "lease_holder": "a job"} and CONFLICT.metrics == {}


def test_fail_on_widens_the_failures() -> None:
    skipped = report(TableReport("a.a", "skipped"))
    assert skipped.exit_code() == 0
    assert skipped.exit_code(("skipped",)) == 1


def test_no_report_contains_a_secret() -> None:
    failure = TableReport.failure("a.a", InputError("no way to postgresql://u:hush@h/d"))
    text = report(failure, error="the header Authorization: hush").to_json()
    assert "no way to postgresql://u:***@h/d" in text and "hush" not in text


def test_a_job_that_stopped_fails() -> None:
    assert report(error="no catalog", failure_class="bad input").exit_code() == 4


def test_jvm_failures_are_reported_with_the_jvm_message() -> None:
    text = 'An error occurred while calling o372.jdbc.\n: org.postgresql.util.PSQLException: ERROR: no "t"\n\tat org.x'
    report = TableReport.failure("shop.orders", RuntimeError(text))
    assert report.reason == 'org.postgresql.util.PSQLException: ERROR: no "t"'


def test_failures_have_a_reason_and_a_class() -> None:
    assert BAD.reason == "no key Add one." and BAD.failure_class == "bad input"
    assert CONFLICT.outcome == "conflict"
    assert OTHER.reason == "RuntimeError: boom" and OTHER.failure_class == "unknown"
    assert LakecdcError("x", lsn="0/1").attributes == {"lsn": "0/1"}


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("No key is given.", "shop.nopk: failed: No key is given."),
        ("shop.nopk has no primary key.", "failed: shop.nopk has no primary key."),
        ("shop.nopk2 is in the way.", "shop.nopk: failed: shop.nopk2 is in the way."),
    ],
)
def test_reasons_name_the_table_once(message: str, line: str) -> None:
    error = InputError(message, table="shop.nopk")
    assert TableReport.failure("shop.nopk", error).line == line
    assert str(error).count("shop.nopk") == line.count("shop.nopk")


def test_reasons_keep_the_name_of_another_table() -> None:
    beside = InputError("It is gone.", table="shop.history")
    assert TableReport.failure("shop.orders", beside).line == "shop.orders: failed: shop.history: It is gone."


def test_the_log_has_a_line_per_table_with_its_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    figures = {"files_before": 9, "files_after": 0, "rows_before": 5, "rows_after": 5, "commits": 1, "misfits": 0}
    more = {"depth_after": 1.5, "position": {"lsn": 7}, "topics": ["a", "b"], "is_late": False, "nothing": None}
    log_tables(logging.getLogger("jobs").log, [TableReport("a.a", "done", metrics=figures | more), BAD, CONFLICT])
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "a.a: done, files=9→0, commits=1, depth_after=1.5"),
        ("ERROR", "a.c: failed: no key Add one."),
        ("ERROR", "a.b: conflict: too late"),
    ]


def test_round_trip() -> None:
    before = report(TableReport("a.a", "done", snapshot_after="9007199254740993", metrics={"rows": 1}), BAD)
    assert parse_report(json.loads(before.to_json())) == before
