"""Run several jobs in sequence in one Spark application, with one report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from lakecdc.contract.report import TableReport, log_tables
from lakecdc.contract.spec import JobSpec
from lakecdc.metadata.names import APPLICATION_PREFIX
from lakecdc.runtime.run import failure, work_of

log = logging.getLogger(__name__)


def govern(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Run the steps of a spec in order; skip tables that failed or conflicted in an earlier step."""
    reports: list[TableReport] = []
    failed: dict[str, TableReport] = {}
    for number, step in enumerate(spec.steps, 1):
        log.info("Step %d of %d: %s", number, len(spec.steps), step.job)
        skipped = _skip_failed(step, failed)
        log_tables(log.log, skipped)
        step_reports = [*_run_step(spark, _without(step, failed)), *skipped]
        reports += [replace(report, job=step.job) for report in step_reports]
        failed |= {report.table: report for report in reports if report.outcome in ("failed", "conflict")}
    return reports


def _run_step(spark: SparkSession, step: JobSpec) -> list[TableReport]:
    """Run a step; if it cannot start, the next step still runs."""
    if not (step.tables or step.side_tables):
        return []
    # staging folders record this name as their owner
    spark.conf.set("spark.app.name", f"{APPLICATION_PREFIX}{step.job}")
    try:
        return work_of(step.job)(spark, step)
    except Exception as error:
        reports = [failure(table, error) for table in step.tables]
        log_tables(log.log, reports)
        return reports


def _without(step: JobSpec, failed: Mapping[str, TableReport]) -> JobSpec:
    options, beside = step.options, tuple(table for table in step.side_tables if table not in failed)
    if beside != step.side_tables:
        options = replace(options, side_tables=beside)  # type: ignore[call-arg]
    return replace(step, tables=tuple(table for table in step.tables if table not in failed), options=options)


def _skip_failed(step: JobSpec, failed: Mapping[str, TableReport]) -> list[TableReport]:
    return [
        TableReport(table, "skipped", f"{failed[table].job} failed before: {failed[table].reason}")
        for table in dict.fromkeys((*step.tables, *step.side_tables))
        if table in failed
    ]
