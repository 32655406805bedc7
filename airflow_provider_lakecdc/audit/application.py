"""A Spark application that an operator started, and its audit rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow.sdk import Context

from airflow_provider_lakecdc.audit.lake_tables import AuditRow, HealthRow
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from lakecdc.contract.report import JobReport, TableReport, now


@dataclass(frozen=True)
class Run:
    """The task try that an application belongs to, in Airflow's terms."""

    dag_id: str
    run_id: str
    task_id: str
    try_number: int
    map_index: int | None = None
    owner: str | None = None
    triggering_user_name: str | None = None

    @classmethod
    def of(cls, context: Context, owner: str | None) -> Run:
        """Return the running try."""
        ti = context["ti"]
        mapped = None if ti.map_index is None or ti.map_index < 0 else ti.map_index
        user = getattr(context.get("dag_run"), "triggering_user_name", None)
        return cls(ti.dag_id, ti.run_id, ti.task_id, ti.try_number, mapped, owner, user)


@dataclass(frozen=True)
class Application:
    """One Spark application.

    :param id: unique; the rows of an id are written once.
    :param tables: the tables to work on, without side tables.
    :param started_at: ISO-8601 time of its submission.
    :param report: the job's report, if it left one.
    :param failure: why the report is missing.
    :param predicted_core_seconds: by job, then table.
    :param guessed_core_seconds: the same before correction by measured runs.
    """

    id: str
    run: Run
    job: str
    tables: tuple[str, ...]
    started_at: str
    report: JobReport | None = None
    failure: LakecdcJobError | None = None
    predicted_core_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    guessed_core_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    is_dry_run: bool = False

    def rows(self) -> list[AuditRow]:
        """Return a row per table and step in the report, and a failed row per table that the job did not reach."""
        reason, kind = "The job left no report.", "unknown"
        if self.failure:
            reason, kind = self.failure.message, self.failure.failure_class
        report = self.report or JobReport(self.job, self.started_at, now(), error=reason, failure_class=kind)
        return [self._row(number, report, table) for number, table in enumerate(self._tables(report))]

    def health_rows(self) -> list[HealthRow]:
        """Return a row per table whose health the job measured in place of a worker, as its last step left it."""
        if self.report is None:
            return []
        measured_at = datetime.fromisoformat(self.report.finished_at)
        health = {each.table: each.metrics["health"] for each in self.report.tables if "health" in each.metrics}
        return HealthRow.of_all(self.id, measured_at, health)

    def _tables(self, report: JobReport) -> Iterator[TableReport]:
        yield from report.tables
        reported = {table.table for table in report.tables}
        for name in self.tables if report.error else ():
            if name not in reported:
                yield TableReport(name, "failed", report.error, report.failure_class)

    def _row(self, number: int, report: JobReport, table: TableReport) -> AuditRow:
        job, metrics = table.job or report.job, table.metrics
        return AuditRow(
            row_id=f"{self.id}/{number}",
            application=self.id,
            job=job,
            table=table.table,
            started_at=datetime.fromisoformat(report.started_at),
            finished_at=datetime.fromisoformat(report.finished_at),
            outcome=table.outcome,
            is_dry_run=self.is_dry_run,
            **vars(self.run),
            spark_application_id=report.spark_application_id,
            failure_class=table.failure_class,
            reason=table.reason,
            snapshot_before=table.snapshot_before,
            snapshot_after=table.snapshot_after,
            predicted_core_seconds=_number(self.predicted_core_seconds.get(job, {}).get(table.table)),
            guessed_core_seconds=_number(self.guessed_core_seconds.get(job, {}).get(table.table)),
            core_seconds=_number(metrics.get("core_seconds")),
            bytes_read=_whole(metrics.get("bytes_read")),
            bytes_written=_whole(metrics.get("bytes_written")),
            proof=proof_of(metrics),
            metrics=metrics,
        )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def proof_of(metrics: Mapping[str, Any]) -> str | None:
    """Return what a job proved before its commits, or why it did not; None if there was nothing to prove."""
    value = metrics.get("verified")
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)
