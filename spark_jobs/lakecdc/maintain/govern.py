"""Several jobs one after another in one Spark application, with one report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecdc.contract.report import TableReport
from lakecdc.metadata.names import APPLICATION_PREFIX
from lakecdc.runtime.run import failure, work_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec

log = logging.getLogger(__name__)


def govern(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Do the steps of a spec in their order.

    What a step has failed for, or has found another writer in, is left out of the later ones; all else goes on.

    :return: reports of each step's tables, which name the step.
    """
    reports: list[TableReport] = []
    failed: dict[str, TableReport] = {}
    for number, step in enumerate(spec.steps, 1):
        log.info("Step %d of %d: %s", number, len(spec.steps), step.job)
        found = [*_done(spark, _without(step, failed)), *_left_out(step, failed)]
        reports += [replace(report, job=step.job) for report in found]
        failed |= {report.table: report for report in reports if report.outcome in ("failed", "conflict")}
    return reports


def _done(spark: SparkSession, step: JobSpec) -> list[TableReport]:
    """Work on the tables of a step; what it needs may be missing, which is none of the next step's business."""
    if not (step.tables or step.side_tables):
        return []
    # the folders of files tell by it who has left them
    spark.conf.set("spark.app.name", f"{APPLICATION_PREFIX}{step.job}")
    try:
        return work_of(step.job)(spark, step)
    except Exception as error:
        return [failure(table, error) for table in step.tables]


def _without(step: JobSpec, failed: Mapping[str, TableReport]) -> JobSpec:
    options, beside = step.options, tuple(table for table in step.side_tables if table not in failed)
    if beside != step.side_tables:
        options = replace(options, side_tables=beside)  # type: ignore[call-arg]
    return replace(step, tables=tuple(table for table in step.tables if table not in failed), options=options)


def _left_out(step: JobSpec, failed: Mapping[str, TableReport]) -> list[TableReport]:
    return [
        TableReport(table, "skipped", f"{failed[table].job} has not got through: {failed[table].reason}")
        for table in dict.fromkeys((*step.tables, *step.side_tables))
        if table in failed
    ]
