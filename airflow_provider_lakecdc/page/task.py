"""The task instance of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from airflow_provider_lakecdc.audit import AuditRow
from airflow_provider_lakecdc.page.addresses import link

# maximum length in Airflow's database
Id = Annotated[str, Query(max_length=250)]


@dataclass(frozen=True)
class Task:
    """A task instance.

    :param map_index: -1 if the task is not mapped.
    :param try_number: None means the last try, from XCom; others are from the audit.
    """

    dag_id: Id
    run_id: Id
    task_id: Id
    map_index: int = -1
    try_number: int | None = None


def report_link(lake: str, row: AuditRow) -> str:
    """Return the address of the report of an audit row's try.

    :param lake: name of the lake with the row.
    """
    mapped = -1 if row.map_index is None else row.map_index
    return link("report", lake=lake, **vars(Task(row.dag_id, row.run_id, row.task_id, mapped, row.try_number)))
