"""Running tasks of a lake's DAGs, from Airflow's database."""

from __future__ import annotations

from typing import Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import and_, select

from airflow_provider_lakecdc.page.history import Task
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.report import AT_WORK
from airflow_provider_lakecdc.submit.job_run import JOB_RUN_KEY

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
        .where(XComModel.key == JOB_RUN_KEY, TaskInstance.dag_id.in_(lake.dags), TaskInstance.state.in_(AT_WORK))
        .order_by(TaskInstance.start_date)
    )
    with create_session(scoped=False) as session:
        rows = session.execute(query).all()
    tasks = [{"task": Task(*row[:4]), "begun": row.start_date} for row in rows]
    return {"tasks": tasks[:_MOST_NAMED], "more": len(tasks[_MOST_NAMED:])}
