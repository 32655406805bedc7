"""Steps of one DAG run over the same tables: a table's failure ends its own chain and nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

#: XCom with the compact report, there whether the task has succeeded or not
REPORT_KEY = "report"


def failed_before(
    context: Context, tables: Sequence[str], after: Sequence[str], planned_by: str | None = None
) -> dict[str, str]:
    """Which tables an earlier step of this run has not got through.

    If a step has left no report, or none of a table that its plan names, nothing is known of it: it counts as failed.

    :param after: task ids of the earlier steps, which are the names of their jobs where there is a plan.
    :param planned_by: id of the task whose plan says which tables they were to work on; without one, on all.
    :return: what happened, by table.
    """
    plan = context["ti"].xcom_pull(task_ids=planned_by) if planned_by and after else None
    found: dict[str, str] = {}
    for task_id in after:
        reported = reports_of(context, task_id)
        asked = _tables(plan, task_id) if plan is not None else (*reported,) if reported else tables
        for table, reason in _failures(reported, [name for name in tables if name in asked], task_id):
            found.setdefault(table, reason)
    return found


def reports_of(context: Context, task_id: str) -> dict[str, Mapping[str, Any]]:
    """What the tasks of a step of this run have reported, by table."""
    pulled = context["ti"].xcom_pull(task_ids=task_id, key=REPORT_KEY)
    # that of a mapped task is one for each group of tables
    reports = [pulled] if isinstance(pulled, Mapping) else pulled or ()
    return {table: facts for report in reports if report for table, facts in report.items()}


def steps_of(context: Context, task_id: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    """What a task that does the work of several has reported: by job, then table."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for table, facts in reports_of(context, task_id).items():
        for job, of_step in facts.get("steps", {}).items():
            found.setdefault(job, {})[table] = of_step
    return found


def _tables(plan: Iterable[Mapping[str, Mapping[str, Any]]], job: str) -> set[str]:
    tasks = [of_job for each in plan if (of_job := each.get(job))]
    beside = [name for task in tasks for name in task.get("policy_options", {}).get("side_tables", ())]
    return {*(name for task in tasks for name in task["tables"]), *beside}


def _failures(reported: Mapping[str, Any], tables: Sequence[str], task_id: str) -> Iterator[tuple[str, str]]:
    for table in tables:
        facts = reported.get(table)
        if facts is None:
            yield table, f"{task_id} left no report of it"
        elif facts.get("outcome") in ("failed", "conflict"):
            yield table, f"{task_id}: {facts.get('reason', facts['outcome'])}"
