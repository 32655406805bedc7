"""Steps of one DAG run over the same tables: a table's failure ends its own chain and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

#: XCom with the compact report, there whether the task has succeeded or not
REPORT_KEY = "report"


def failed_before(context: Context, tables: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    """Which tables an earlier step of this run has not got through.

    A step of the same map index has worked on the same group of tables. If it has left no report, nothing is known of
    any of its tables, and all of them count as failed.

    :param after: task ids of the earlier steps.
    :return: what happened, by table.
    """
    found: dict[str, str] = {}
    for task_id in after:
        report = context["ti"].xcom_pull(task_ids=task_id, key=REPORT_KEY, map_indexes=context["ti"].map_index)
        for table, reason in _failures(report, tables, task_id):
            found.setdefault(table, reason)
    return found


def _failures(report: Mapping[str, Any] | None, tables: Sequence[str], task_id: str) -> Iterator[tuple[str, str]]:
    for table in tables:
        if report is None:
            yield table, f"{task_id} left no report"
        elif report.get(table, {}).get("outcome") in ("failed", "conflict"):
            yield table, f"{task_id}: {report[table].get('reason', report[table]['outcome'])}"
