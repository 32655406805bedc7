"""How the base operator treats a failed job and arguments that cannot work."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_provider_lakecdc.exceptions import (
    JobBadInputError,
    JobClusterError,
    JobConflictError,
    LakecdcJobError,
)
from tests.airflow_provider_lakecdc.conftest import FakeSpark, connection
from tests.airflow_provider_lakecdc.operators.support import rewrite

Context = Any
pytestmark = pytest.mark.usefixtures("lake")


LEASE_HELD = {
    "outcome": "conflict",
    "failure_class": "conflict",
    "reason": "held",
    "metrics": {"lease_holder": "sort_data_files in Spark application 7"},
}


def rescheduled_since(context: Context, hours: int | None) -> None:
    """Pretend that a scheduler first rescheduled the task so many hours ago."""
    first = None if hours is None else datetime.now(UTC) - timedelta(hours=hours)
    context["ti"].get_first_reschedule_date = lambda _: first


class TestFailures:
    """A report's failure becomes the exception whose class decides on Airflow's retry."""

    @pytest.mark.parametrize(
        ("outcome", "failure_class", "error"),
        [
            ("conflict", "conflict", JobConflictError),
            ("failed", "bad input", JobBadInputError),
            ("failed", "cluster", JobClusterError),
            ("failed", "unknown", LakecdcJobError),
        ],
    )
    def test_the_failure_of_one_table_has_its_class(
        self,
        spark_submit: FakeSpark,
        context: Context,
        outcome: str,
        failure_class: str,
        error: type[LakecdcJobError],
    ) -> None:
        facts = {"outcome": outcome, "failure_class": failure_class, "reason": "it went wrong because of x"}
        spark_submit.behave({"shop.items": facts}, exit=1)
        with pytest.raises(error, match=f"shop.items: {outcome}: it went wrong because of x") as caught:
            rewrite("shop.orders", "shop.items").execute(context)
        assert type(caught.value) is error
        assert "1 of 2 tables" in str(caught.value) and "Hint:" in str(caught.value)
        assert context["ti"].xcom["report"]["shop.orders"]["outcome"] == "done"

    @pytest.mark.parametrize("hours", [None, 5])
    def test_a_held_lease_reschedules_the_task(
        self, spark_submit: FakeSpark, context: Context, caplog: pytest.LogCaptureFixture, hours: int | None
    ) -> None:
        spark_submit.behave({"shop.items": LEASE_HELD}, exit=3)
        rescheduled_since(context, hours)
        with pytest.raises(AirflowRescheduleException) as caught:
            rewrite("shop.orders", "shop.items").execute(context)
        assert timedelta(0) < caught.value.reschedule_date - datetime.now(UTC) <= timedelta(minutes=1)
        assert "shop.items: sort_data_files in Spark application 7 has the lease" in caplog.text

    @pytest.mark.parametrize(
        ("others", "hours", "error"),
        [
            ({}, 7, JobConflictError),
            ({"shop.orders": {"outcome": "conflict", "failure_class": "conflict"}}, 0, JobConflictError),
            ({"shop.orders": {"outcome": "failed", "failure_class": "cluster"}}, 0, JobClusterError),
        ],
    )
    def test_other_failures_beside_a_held_lease_fail_the_task(
        self, spark_submit: FakeSpark, context: Context, others: dict[str, Any], hours: int, error: type[Exception]
    ) -> None:
        spark_submit.behave({"shop.items": LEASE_HELD, **others}, exit=3)
        rescheduled_since(context, hours)
        with pytest.raises(error):
            rewrite("shop.orders", "shop.items").execute(context)

    def test_the_report_decides_not_the_exit_code(self, spark_submit: FakeSpark, context: Context) -> None:
        spark_submit.behave(exit=1)
        assert rewrite().execute(context)["shop.orders"]["outcome"] == "done"
        spark_submit.behave({"shop.orders": {"outcome": "failed", "failure_class": "cluster"}}, exit=0)
        with pytest.raises(JobClusterError):
            rewrite().execute(context)

    def test_a_job_without_tables_fails(self, spark_submit: FakeSpark, context: Context) -> None:
        error = "The catalog cannot be opened at postgresql://u:hunter2@h/d"
        spark_submit.behave(tables={}, exit=1, error=error, failure_class="cluster")
        with pytest.raises(JobClusterError, match="cannot be opened") as caught:
            rewrite().execute(context)
        assert "hunter2" not in str(caught.value)

    def test_a_reported_reason_excludes_the_command_and_sparks_lines(
        self, spark_submit: FakeSpark, context: Context
    ) -> None:
        facts = {"outcome": "failed", "failure_class": "bad input", "reason": "it has no key"}
        spark_submit.behave({"shop.orders": facts}, exit=4, output=("26/11/23 06:20:44 INFO SparkContext: x",))
        with pytest.raises(JobBadInputError) as caught:
            rewrite().execute(context)
        shown = "".join(traceback.format_exception(caught.value))
        assert "Cannot execute" not in shown and "SparkContext" not in shown and "--spec" not in shown
        assert str(caught.value).splitlines() == [
            "rewrite_delete_files failed (bad input) for 1 of 1 tables:",
            "  shop.orders: failed: it has no key",
            "Hint: A retry would fail the same way. Fix the problem above, then clear the task.",
        ]

    def test_sparks_lines_are_folded_in_the_log(
        self, spark_submit: FakeSpark, context: Context, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sparks, ours = (
            "26/11/23 06:20:44 INFO SparkContext: x",
            "2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: done",
        )
        spark_submit.behave(output=(sparks, ours))
        rewrite().execute(context)
        log = capsys.readouterr().out
        places = [log.index(line) for line in ("::group::Spark", sparks, "::endgroup::", ours, ": 1 done")]
        assert places == sorted(places)

    def test_a_process_killed_by_the_system_ran_out_of_memory(self, spark_submit: FakeSpark, context: Context) -> None:
        (spark_submit.folder / "spark-submit").write_text("#!/bin/sh\nkill -9 $$\n")
        with pytest.raises(JobClusterError, match="exit code -9.*\n.*driver_memory"):
            rewrite().execute(context)

    def test_without_a_report_the_last_lines_are_shown(self, spark_submit: FakeSpark, context: Context) -> None:
        spark_submit.behave(report=False, exit=137, output=("starting", "java.lang.OutOfMemoryError: Java heap space"))
        with pytest.raises(JobClusterError, match="left no report") as caught:
            rewrite().execute(context)
        assert "Java heap space" in str(caught.value) and "driver_memory" in str(caught.value)

    def test_a_missing_report_fails_despite_exit_code_0(self, spark_submit: FakeSpark, context: Context) -> None:
        spark_submit.behave(report=False)
        with pytest.raises(LakecdcJobError, match="left no report"):
            rewrite().execute(context)

    def test_an_incomplete_report_is_ignored(self, spark_submit: FakeSpark, context: Context) -> None:
        spark_submit.behave(text='{"version": 1, "job"')
        with pytest.raises(LakecdcJobError, match="left no report"):
            rewrite().execute(context)

    def test_fail_on_adds_failing_outcomes(self, spark_submit: FakeSpark, context: Context) -> None:
        spark_submit.behave({"shop.orders": {"outcome": "skipped", "reason": "too small"}})
        assert rewrite().execute(context)
        with pytest.raises(LakecdcJobError, match="too small"):
            rewrite(fail_on=["skipped"]).execute(context)


class TestRefusals:
    """Arguments that cannot work are refused before a Spark application starts."""

    def test_a_wrong_option_is_refused(self, spark_submit: FakeSpark, context: Context) -> None:
        with pytest.raises(JobBadInputError, match="position_deletes"):
            rewrite(position_deletes="magic").execute(context)
        assert spark_submit.calls == []

    def test_an_empty_list_of_tables_is_refused(self, spark_submit: FakeSpark, context: Context) -> None:
        with pytest.raises(JobBadInputError, match="names no table"):
            rewrite(tables=[]).execute(context)

    def test_a_missing_spark_connection_is_refused(self, spark_submit: FakeSpark, context: Context) -> None:
        with pytest.raises(JobBadInputError, match="Connection 'spark_elsewhere' .* does not exist"):
            rewrite(conn_id="spark_elsewhere").execute(context)
        assert spark_submit.calls == []

    def test_a_missing_catalog_connection_is_refused(self, spark_submit: FakeSpark, context: Context) -> None:
        with pytest.raises(JobBadInputError, match="Connection 'nowhere' .* does not exist"):
            rewrite(catalog_conn_id="nowhere").execute(context)

    def test_arguments_set_by_the_operator_are_refused(self) -> None:
        with pytest.raises(ValueError, match="application_args"):
            rewrite(application_args=["--spec", "x"])

    def test_a_missing_spark_submit_is_refused(
        self, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        connection(
            monkeypatch, "spark_default", conn_type="spark", host="local[2]", extra={"spark-binary": "spark3-submit"}
        )
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(JobBadInputError, match="spark3-submit is not on"):
            rewrite().execute(context)
