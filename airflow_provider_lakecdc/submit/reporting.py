"""Reports in Airflow: a summary in the log, a compact XCom, the extra of asset events.

The XComs of a DAG run's steps form chains per table: a failure for one table does not stop the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from lakecdc.contract.report import JobReport, TableReport, each_metric
from lakecdc.contract.spec import JobSpec

# the outcome of several steps: the first of these
_GRAVEST = ("failed", "conflict", "done", "skipped", "unsupported", "nothing")
#: XCom with the compact report, pushed even if the task fails
REPORT_KEY = "report"


def compact(report: JobReport) -> dict[str, dict[str, Any]]:
    """Return the report's facts by table for XCom, without empty ones.

    For a job with steps, a table has the overall facts, and below ``steps`` the facts of each by its job. Snapshot ids
    are text, since JavaScript numbers lack 64-bit precision.
    """
    by_table: dict[str, list[TableReport]] = {}
    for table in report.tables:
        by_table.setdefault(table.table, []).append(table)
    return {table: _facts_of_steps(steps) for table, steps in by_table.items()}


def summary(report: JobReport) -> str:
    """Return how long a job took and how many tables had which outcome, in one line."""
    took = datetime.fromisoformat(report.finished_at) - datetime.fromisoformat(report.started_at)
    outcomes = Counter(table.outcome for table in report.tables)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()) or "no table"
    application = report.spark_application_id or "without Spark"
    return f"{report.job} took {took.total_seconds():.0f} s ({application}): {counts}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of a table with aligned columns."""
    # the last column, which may be long, needs no padding
    widths = [*(max(map(len, cells)) for cells in list(zip(*rows, strict=True))[:-1]), 0]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def raise_asset_events(
    context: Context, outlets: Iterable[Any], catalog_conn_id: str, report: JobReport, changed: JobReport
) -> None:
    """Set each table's facts on the events of the operator's outlets, at most one event per table.

    Airflow raises the event of every plain asset in the outlets when the task succeeds; only its extra is set. Through
    an alias only changed tables get an event.

    :param changed: the report without planned changes of dry runs (:func:`without_plans`).
    """
    facts = {
        table_asset(catalog_conn_id, name).uri: {"table": name, "job": report.job, **of}
        for name, of in compact(report).items()
    }
    alias = tables_alias(catalog_conn_id).name
    for outlet in outlets:
        if isinstance(outlet, Asset) and outlet.uri in facts:
            context["outlet_events"][outlet].extra.update(facts[outlet.uri])
        elif isinstance(outlet, AssetAlias) and outlet.name == alias:
            for name in dict.fromkeys(table.table for table in changed.tables if table.outcome == "done"):
                asset = table_asset(catalog_conn_id, name)
                context["outlet_events"][outlet].add(asset, extra=facts[asset.uri])


def without_plans(report: JobReport, spec: JobSpec) -> JobReport:
    """Return the report without changes that dry runs only planned, for any outcome."""
    return replace(report, tables=tuple(table for table in report.tables if spec.changes(table.job, table.table)))


def _facts_of_steps(steps: Sequence[TableReport]) -> dict[str, Any]:
    """Return the overall facts of a table's steps: the gravest outcome, the first and the last head."""
    if not any(step.job for step in steps):
        return _facts(steps[-1])
    gravest = min(steps, key=lambda step: _GRAVEST.index(step.outcome))
    before = [step.snapshot_before for step in steps if step.snapshot_before]
    after = [step.snapshot_after for step in steps if step.snapshot_after]
    whole = replace(
        gravest,
        reason=f"{gravest.job}: {gravest.reason}" if gravest.reason else None,
        snapshot_before=before[0] if before else None,
        snapshot_after=after[-1] if after else None,
        metrics={},
    )
    return {**_facts(whole), "steps": {step.job: _facts(step) for step in steps}}


def _facts(table: TableReport) -> dict[str, Any]:
    names = ("outcome", "reason", "failure_class", "snapshot_before", "snapshot_after", "metrics")
    return {name: value for name in names if (value := getattr(table, name)) not in (None, {})}


def details(facts: Mapping[str, Any]) -> str:
    """Format a table's reason and metrics in one line, from a table's value in :func:`compact`."""
    return ", ".join(
        [*([facts["reason"]] if "reason" in facts else []), *each_metric(facts.get("metrics", {}), zeros=False)]
    )


def failed_before(
    context: Context, tables: Sequence[str], after: Sequence[str], planned_by: str | None = None
) -> dict[str, str]:
    """Return the tables for which an earlier step of this run failed, with reasons.

    A missing report, or one without a planned table, counts as failed.

    :param after: task ids of the earlier steps; with a plan, these are the names of their jobs.
    :param planned_by: id of the task whose plan lists the tables of the steps; without one, all tables.
    """
    plan = context["ti"].xcom_pull(task_ids=planned_by) if planned_by and after else None
    failures: dict[str, str] = {}
    for task_id in after:
        reported = reports_of(context, task_id)
        expected = _tables(plan, task_id) if plan is not None else (*reported,) if reported else tables
        for table in (name for name in tables if name in expected):
            facts = reported.get(table)
            if facts is None:
                failures.setdefault(table, f"{task_id} did not report on it")
            elif facts.get("outcome") in ("failed", "conflict"):
                failures.setdefault(table, f"{task_id}: {facts.get('reason', facts['outcome'])}")
    return failures


def reports_of(context: Context, task_id: str) -> dict[str, Mapping[str, Any]]:
    """Return the reports of a step's tasks by table."""
    pulled = context["ti"].xcom_pull(task_ids=task_id, key=REPORT_KEY)
    # a mapped task has one per group of tables
    reports = [pulled] if isinstance(pulled, Mapping) else pulled or ()
    return {table: facts for report in reports if report for table, facts in report.items()}


def steps_of(context: Context, task_id: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the reports of a task that runs several jobs, by job and table."""
    by_job: dict[str, dict[str, Mapping[str, Any]]] = {}
    for table, facts in reports_of(context, task_id).items():
        for job, of_step in facts.get("steps", {}).items():
            by_job.setdefault(job, {})[table] = of_step
    return by_job


def _tables(plan: Iterable[Mapping[str, Mapping[str, Any]]], job: str) -> set[str]:
    tasks = [of_job for each in plan if (of_job := each.get(job))]
    beside = [name for task in tasks for name in task.get("policy_options", {}).get("side_tables", ())]
    return {*(name for task in tasks for name in task["tables"]), *beside}
