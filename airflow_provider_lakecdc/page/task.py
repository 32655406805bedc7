"""The task instance whose job a report is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from airflow_provider_lakecdc.audit import AuditRow
from airflow_provider_lakecdc.page.addresses import link

# characters that Airflow's database takes
Id = Annotated[str, Query(max_length=250)]


@dataclass(frozen=True)
class Task:
    """The task instance that is asked for.

    :param map_index: -1 if the task is not mapped.
    :param try_number: None is its last try, as it has told Airflow; any other is one that the audit has.
    """

    dag_id: Id
    run_id: Id
    task_id: Id
    map_index: int = -1
    try_number: int | None = None


def report_link(lake: str, row: AuditRow) -> str:
    """The address of the report of the try that a row of the audit is of.

    :param lake: name of the lake that has the row.
    """
    mapped = -1 if row.map_index is None else row.map_index
    return link("report", lake=lake, **vars(Task(row.dag_id, row.run_id, row.task_id, mapped, row.try_number)))
