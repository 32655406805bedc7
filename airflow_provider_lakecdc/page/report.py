"""What a task has told of its job: the report, or that there is none yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.audit import proof_of
from airflow_provider_lakecdc.chaining import REPORT_KEY
from airflow_provider_lakecdc.heard import PROGRESS_KEY, progress_of
from airflow_provider_lakecdc.job_run import JOB_RUN_KEY, JobRun
from airflow_provider_lakecdc.page.history import Change, changes
from airflow_provider_lakecdc.page.lakes import lakes
from airflow_provider_lakecdc.reporting import each_metric

_AT_WORK = ("running", "restarting")
# jobs tell how far they are every half minute at most
_REFRESH_SECONDS = 20


@dataclass(frozen=True)
class Task:
    """The task instance that is asked for.

    :param map_index: -1 if the task is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


@dataclass(frozen=True)
class Step:
    """What a job, or one step of it, has done to a table.

    :param job: the step; None if there is but one.
    :param changes: what of the table has changed.
    :param proof: what was proven before the commit; None if nothing was.
    :param figures: all metrics, as the task's log has them.
    """

    table: str
    job: str | None
    outcome: str
    reason: str | None
    snapshot_before: str | None
    snapshot_after: str | None
    core_seconds: float | None
    changes: tuple[Change, ...]
    proof: str | None
    figures: tuple[str, ...]


def report_of(task: Task) -> dict[str, Any]:
    """What the page of a report tells: only what this very task instance has pushed, and no file."""
    found, state = _read(task)
    told = found.get(JOB_RUN_KEY)
    run = JobRun.from_xcom(told) if isinstance(told, Mapping) else None
    reported = found.get(REPORT_KEY)
    steps = [*_steps(reported)] if isinstance(reported, Mapping) else []
    outcomes = [step.outcome for step in steps]
    return {
        "task": task,
        "run": run,
        "runs_on": run is not None and run.finished_at is None and state in _AT_WORK,
        "progress": [*progress_of(found.get(PROGRESS_KEY, []))],
        "refresh_seconds": _REFRESH_SECONDS,
        "steps": steps,
        "counts": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
        "core_seconds": sum(step.core_seconds or 0 for step in steps),
        "shown_in": next((lake.name for lake in lakes() if run and lake.conn_id == run.catalog_conn_id), None),
    }


def _read(task: Task) -> tuple[dict[str, Any], str | None]:
    """The XComs of the task instance that make a report, and its state."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ids = {"dag_id": task.dag_id, "run_id": task.run_id, "task_id": task.task_id, "map_index": task.map_index}
    keys = XComModel.key.in_((JOB_RUN_KEY, REPORT_KEY, PROGRESS_KEY))
    # a session of this thread alone
    with create_session(scoped=False) as session:
        # as Airflow's own API does: what is in the database is not made an object of
        rows = session.execute(select(XComModel.key, XComModel.value).filter_by(**ids).where(keys)).all()
        state = session.scalar(select(TaskInstance.state).filter_by(**ids))
    return {row.key: row.value for row in rows}, state


def _steps(reported: Mapping[str, Mapping[str, Any]]) -> Iterator[Step]:
    for table, facts in reported.items():
        for job, of_step in facts.get("steps", {None: facts}).items():
            yield _step(table, job, of_step)


def _step(table: str, job: str | None, facts: Mapping[str, Any]) -> Step:
    metrics = facts.get("metrics", {})
    return Step(
        table=table,
        job=job,
        outcome=facts["outcome"],
        reason=facts.get("reason"),
        snapshot_before=facts.get("snapshot_before"),
        snapshot_after=facts.get("snapshot_after"),
        core_seconds=metrics.get("core_seconds"),
        changes=tuple(changes(metrics)),
        proof=proof_of(metrics),
        figures=tuple(each_metric(metrics)),
    )
