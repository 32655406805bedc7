"""Chains of steps per table in a DAG run: a failure for one table does not stop the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk import Context

#: XCom with the compact report, pushed even if the task fails
REPORT_KEY = "report"


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
        for table, reason in _failures(reported, [name for name in tables if name in expected], task_id):
            failures.setdefault(table, reason)
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


def _failures(reported: Mapping[str, Any], tables: Sequence[str], task_id: str) -> Iterator[tuple[str, str]]:
    for table in tables:
        facts = reported.get(table)
        if facts is None:
            yield table, f"{task_id} did not report on it"
        elif facts.get("outcome") in ("failed", "conflict"):
            yield table, f"{task_id}: {facts.get('reason', facts['outcome'])}"
