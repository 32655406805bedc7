"""Running tasks, and reports of a task's job: of its last try from XCom, of earlier tries from the audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import and_, select

from airflow_provider_lakecdc.audit import AuditRow, history_of_task, proof_of
from airflow_provider_lakecdc.page.history import Task, changes, report_link
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.submit.job_run import JOB_RUN_KEY, PROGRESS_KEY, JobRun
from airflow_provider_lakecdc.submit.reporting import REPORT_KEY
from lakecdc.contract.report import each_metric

# states of a task whose job may run
_AT_WORK = ("running", "restarting")
# jobs report progress at most every half minute
_REFRESH_SECONDS = 20
_MOST_NAMED = 5


def running_in(lake: Lake) -> dict[str, Any]:
    """Return the template's values of the tasks of a lake's DAGs whose jobs run, the longest first.

    Tasks without a job, such as sensors, do not count.
    """
    ids = ("dag_id", "run_id", "task_id", "map_index")
    has_job = [getattr(TaskInstance, each) == getattr(XComModel, each) for each in ids]
    columns = (*(getattr(TaskInstance, each) for each in ids), TaskInstance.start_date)
    query = (
        select(*columns)
        .join(XComModel, onclause=and_(*has_job))
        .where(XComModel.key == JOB_RUN_KEY, TaskInstance.dag_id.in_(lake.dags), TaskInstance.state.in_(_AT_WORK))
        .order_by(TaskInstance.start_date)
    )
    with create_session(scoped=False) as session:
        rows = session.execute(query).all()
    tasks = [{"task": Task(*row[:4]), "begun": row.start_date} for row in rows]
    return {"tasks": tasks[:_MOST_NAMED], "more": len(tasks[_MOST_NAMED:])}


def report_of(visible: Iterable[Lake], task: Task) -> dict[str, Any]:
    """Return the template's values of the last try's report, only from XComs of this very task instance."""
    pushed, state = _read(task)
    job_run = pushed.get(JOB_RUN_KEY)
    run = JobRun.from_xcom(job_run) if isinstance(job_run, Mapping) else None
    reported = pushed.get(REPORT_KEY)
    lake = next((lake for lake in visible if run and lake.conn_id == run.catalog_conn_id), None)
    return {
        **_facts(task, run, lake, [*_steps(reported)] if isinstance(reported, Mapping) else []),
        "runs_on": run is not None and run.finished_at is None and state in _AT_WORK,
        "progress": pushed.get(PROGRESS_KEY, [])[::-1],
    }


def report_of_try(lake: Lake, task: Task) -> dict[str, Any]:
    """Return the template's values of any try's report, from the audit of a lake."""
    rows = [row for row in _audited(lake, task) if row.try_number == task.try_number]
    jobs = list(dict.fromkeys(row.job for row in rows))
    run = None
    if rows:
        run = JobRun(
            job=", ".join(jobs),
            catalog_conn_id=lake.conn_id,
            tables=tuple(dict.fromkeys(row.table for row in rows)),
            is_dry_run=rows[0].is_dry_run,
            started_at=min(row.started_at for row in rows).isoformat(),
            finished_at=max(row.finished_at for row in rows).isoformat(),
            spark_application_id=rows[0].spark_application_id,
        )
    steps = [_step(row.table, row.job if len(jobs) > 1 else None, vars(row)) for row in rows]
    return {**_facts(task, run, lake, steps), "runs_on": False, "progress": []}


def tries_of(lakes: Iterable[Lake], task: Task) -> dict[str, Any]:
    """Return a task's tries from the audit, newest first; once it has pushed its catalog, only that lake is read."""
    pushed, _ = _read(task)
    conn_id = pushed.get(JOB_RUN_KEY, {}).get("catalog_conn_id")
    lake = next((lake for lake in lakes if conn_id in (None, lake.conn_id)), None)
    if lake is None:
        return {"tries": []}
    by_number = [list(rows) for _, rows in groupby(_audited(lake, task), lambda row: row.try_number)]
    tries = [
        {
            "ended": max(rows, key=lambda row: row.finished_at),
            "outcomes": list(dict.fromkeys(row.outcome for row in rows)),
            "address": report_link(lake.name, rows[0]),
        }
        for rows in by_number
    ]
    return {"tries": tries}


def _facts(task: Task, run: JobRun | None, lake: Lake | None, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    outcomes = [step["outcome"] for step in steps]
    return {
        "task": task,
        "run": run,
        "steps": steps,
        "counts": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
        "core_seconds": sum(step["core_seconds"] or 0 for step in steps),
        "prices": lake.config.prices if lake and lake.config else None,
        "shown_in": lake.name if lake else None,
        "refresh_seconds": _REFRESH_SECONDS,
    }


def _audited(lake: Lake, task: Task) -> list[AuditRow]:
    """Return the rows of visible tables by try, in the order of their reports."""
    mapped = None if task.map_index < 0 else task.map_index
    rows = history_of_task(lake.catalog, task.dag_id, task.run_id, task.task_id, mapped)
    shown = [row for row in rows if lake.shows(row.table)]
    return sorted(shown, key=lambda row: (-row.try_number, row.application, int(row.row_id.rpartition("/")[2])))


def _read(task: Task) -> tuple[dict[str, Any], str | None]:
    """Read the task instance's XComs of the report, and its state."""
    ids = {"dag_id": task.dag_id, "run_id": task.run_id, "task_id": task.task_id, "map_index": task.map_index}
    keys = XComModel.key.in_((JOB_RUN_KEY, REPORT_KEY, PROGRESS_KEY))
    # a session for this thread only
    with create_session(scoped=False) as session:
        # like Airflow's own API, never deserialize stored values into objects
        rows = session.execute(select(XComModel.key, XComModel.value).filter_by(**ids).where(keys)).all()
        state = session.scalar(select(TaskInstance.state).filter_by(**ids))
    return {row.key: row.value for row in rows}, state


def _steps(reported: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for table, facts in reported.items():
        for job, of_step in facts.get("steps", {None: facts}).items():
            yield _step(table, job, of_step)


def _step(table: str, job: str | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job, or one step of a job with steps, did to a table."""
    metrics = facts.get("metrics", {})
    return {
        **{name: facts.get(name) for name in ("outcome", "reason", "snapshot_before", "snapshot_after")},
        **{"table": table, "job": job, "core_seconds": metrics.get("core_seconds"), "proof": proof_of(metrics)},
        **{"changes": [*changes(metrics)], "figures": [*each_metric(metrics)]},
    }
