"""The class of a failure, by the contract's precedence, and its hint."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_provider_lakecdc.exceptions import CLASSES, LakecdcJobError
from airflow_provider_lakecdc.submit.failures import failure_class, interrupted, verdict
from lakecdc.contract.report import JobReport, TableReport


def report(*classes: str | None, **facts: Any) -> JobReport:
    tables = tuple(
        TableReport(f"s.t{i}", "conflict" if kind == "conflict" else "failed" if kind else "done", "why", kind)
        for i, kind in enumerate(classes)
    )
    return JobReport("expire_snapshots", "a", "b", tables=tables, **facts)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ((None, None), None),
        (("conflict", None), "conflict"),
        (("bad input", None), "bad input"),
        (("bad input", "conflict"), "bad input"),
        (("cluster", "bad input"), "cluster"),
        (("cluster", "unknown"), "unknown"),
        (("unknown", "bad input", "conflict"), "unknown"),
    ],
)
def test_classes_of_failures_have_a_precedence(classes: tuple[str | None, ...], expected: str | None) -> None:
    assert failure_class(report(*classes)) == expected


def test_an_error_before_any_table_counts_too() -> None:
    assert failure_class(report(error="x", failure_class="bad input")) == "bad input"
    assert failure_class(report("conflict", error="x", failure_class="cluster")) == "cluster"


def test_only_bad_input_forbids_a_retry() -> None:
    assert {kind for kind, error in CLASSES.items() if issubclass(error, AirflowFailException)} == {"bad input"}
    assert all(issubclass(error, AirflowException) for error in CLASSES.values())


@pytest.mark.parametrize("outcome", ["skipped", "unsupported", "nothing"])
def test_harmless_outcomes_fail_only_on_request(outcome: Any) -> None:
    harmless = JobReport("ingest", "a", "b", tables=(TableReport("s.t", outcome, "why"),))
    assert verdict(harmless, None) is None
    assert isinstance(verdict(harmless, None, (outcome,)), LakecdcJobError)


def test_a_table_named_in_the_error_is_not_named_twice() -> None:
    one = JobReport("ingest", "a", "b", tables=(TableReport("s.t", "failed", "s.t: no key", "bad input"),))
    assert str(verdict(one, None)).count("s.t") == 1


def test_the_hint_of_a_class_leaves_the_cause_to_the_reason() -> None:
    busy = "The slot 's' is in use by the server process 7. Stop the other, or choose another source.slot."
    table = TableReport("shop.orders", "conflict", busy, "conflict")
    failure = verdict(JobReport("ingest", "a", "b", tables=(table,)), None)
    assert failure is not None and busy in failure.message
    assert "writer" not in str(failure.hint) and "A retry starts from the current state" in str(failure.hint)
    open_transaction = "A transaction of Postgres has been open for 1800 seconds. End it, or run again later."
    failure = verdict(report(error=open_transaction, failure_class="cluster"), None)
    assert failure is not None and "reached" not in str(failure.hint) and "Fix the problem above" in str(failure.hint)


def test_commits_remain_when_the_worker_ends_before_the_report() -> None:
    message = interrupted(BrokenPipeError(32, "Broken pipe")).message
    assert message == "The worker's process ended before the job reported. The job's commits remain."
    late = interrupted(TimeoutError("over an hour")).message
    assert "reported (TimeoutError: over an hour). The" in late


@pytest.mark.parametrize(
    ("output", "kind", "hint"),
    [
        ("java.lang.OutOfMemoryError: GC overhead", "cluster", "driver_memory"),
        ("spark-class: line 97: 4711 Killed", "cluster", "driver_memory"),
        ("Container exited with exit code: 137", "cluster", "driver_memory"),
        ("unresolved dependency: org.apache.iceberg", "cluster", "Maven"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "cluster", "[spark]"),
        ("JAVA_HOME is not set", "cluster", "Java 17"),
        ("Segmentation fault", "unknown", "log"),
    ],
)
def test_without_a_report_the_output_is_read(output: str, kind: str, hint: str) -> None:
    failure = verdict(None, AirflowException(f"Cannot execute: spark-submit. Error code is: 1.\n{output}"))
    assert failure is not None
    assert failure.failure_class == kind
    assert output in str(failure) and hint in str(failure)
