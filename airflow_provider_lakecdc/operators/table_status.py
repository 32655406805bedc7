"""The operator that reports the status of tables, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.status import report_statuses, tables_of
from airflow_provider_lakecdc.lake.tables import MAIN
from airflow_provider_lakecdc.submit.reporting import aligned
from airflow_provider_lakecdc.submit.submission import table_list

#: XCom with the statuses, pushed even if the task fails
STATUS_KEY = "status"
_HEADINGS = ("table", "format", "equality deletes", "position deletes", "v4", "refused by", "score", "last write")


class TableStatusOperator(BaseOperator):
    """Report deletes, engines that can read the tables, readiness for format version 4, and the last write.

    Only metadata is read, usually one file per table. The return value is a dict by table, see
    :func:`airflow_provider_lakecdc.lake.status.status_of`; the log has it as a table. A table that cannot be read
    fails the task after all others have been reported.

    :param tables: ``namespace.name`` of each table. (templated)
    :param namespaces: namespaces whose tables are all reported. (templated)
    :param branch: the branch to read. (templated)
    :param partitions: report the last change of each partition, with maintenance; this reads all manifests.
    :param health: report the read cost of each table's layout, with a score; this reads the head's manifests.
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    """

    template_fields: Sequence[str] = ("tables", "namespaces", "branch", "catalog_conn_id")

    def __init__(
        self,
        *,
        tables: str | Sequence[str] = (),
        namespaces: str | Sequence[str] = (),
        branch: str = MAIN,
        partitions: bool = False,
        health: bool = False,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.namespaces = namespaces
        self.branch = branch
        self.partitions = partitions
        self.health = health
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()

    def execute(self, context: Context) -> dict[str, dict[str, Any]]:
        """Report the status of all tables.

        :raises AirflowFailException: neither tables nor namespaces are given.
        :raises LakecdcJobError: a table could not be read.
        """
        if not table_list(self.tables) and not table_list(self.namespaces):
            raise AirflowFailException("Neither tables nor namespaces are given.")
        catalog = get_catalog(self.catalog_conn_id)
        names = dict.fromkeys(table_list(self.tables))
        statuses: dict[str, dict[str, Any]] = {}
        for namespace in table_list(self.namespaces):
            try:
                names |= dict.fromkeys(tables_of(catalog, namespace))
            except Exception as error:
                statuses[namespace] = {"error": f"Cannot list its tables: {type(error).__name__}: {error}"}
        parts = {"partitions": self.partitions, "health": self.health}
        statuses |= report_statuses(catalog, list(names), self.branch, **parts)
        self.log.info("Tables of %s:\n%s", self.catalog_conn_id, overview(statuses))
        context["ti"].xcom_push(key=STATUS_KEY, value=statuses)
        if failed := {name: status["error"] for name, status in statuses.items() if "error" in status}:
            lines = "\n".join(f"  {name}: {error}" for name, error in failed.items())
            raise LakecdcJobError(f"Cannot read {len(failed)} of {len(statuses)} tables:\n{lines}")
        return statuses


def overview(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Format statuses for the log, a line per table."""
    return aligned([_HEADINGS, *(_row(name, status) for name, status in statuses.items())])


def _row(name: str, status: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in status:
        return (name, *["-"] * (len(_HEADINGS) - 2), str(status["error"]))
    equality = f"{status['equality_deletes']} in {status['equality_delete_files']} files"
    position = f"{status['position_deletes']} in {status['position_delete_files']} files"
    written = status["last_write"]["written_at"] if status["last_write"] else "-"
    ready = "ready" if status["ready_for_v4"] else "not ready"
    score = f"{status['health']['score']:.0f}" if status.get("health") else "-"
    refused = ", ".join(status["refused_by"])
    return name, f"v{status['format_version']}", equality, position, ready, refused, score, written
