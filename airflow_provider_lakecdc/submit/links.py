"""The links from a task to what its job shows while it runs and leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_lakecdc.page.addresses import link_from_airflow

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from airflow_provider_lakecdc.audit import Run

#: XComs under which the links' addresses are kept; they are pushed as soon as they are known, so that the links work
#: while the job runs and after it has failed
REPORT_LINK_KEY = "lakecdc_report_link"
TABLE_LINK_KEY = "lakecdc_table_link"
SPARK_UI_KEY = "spark_ui"


class _PushedLink(BaseOperatorLink):
    """A link whose address the operator pushes."""

    key: ClassVar[str]

    @property
    def xcom_key(self) -> str:
        """XCom key from which Airflow's web page takes the address."""
        return self.key

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The address that the operator has pushed; Airflow asks once more when the task ends."""
        return str(XCom.get_value(ti_key=ti_key, key=self.key) or "")


class JobReportLink(_PushedLink):
    """Opens the job's report on the page Lakehouse."""

    name = "Job report"
    key = REPORT_LINK_KEY


class TableLink(_PushedLink):
    """Opens the table that the job works on, on the same page; of several, the list of tables."""

    name = "Table"
    key = TABLE_LINK_KEY


class SparkUiLink(_PushedLink):
    """Opens Spark's own page: the driver's while the job runs, then the history server's; no link without one."""

    name = "Spark UI"
    key = SPARK_UI_KEY


def report_address(ti: Run) -> str:
    """Where Airflow's page finds the report of a task instance's job, relative to itself."""
    return link_from_airflow("report", dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=ti.map_index)


def table_address(catalog_conn_id: str, tables: Sequence[str]) -> str:
    """Where Airflow's page finds the tables that a job works on, relative to itself.

    :param catalog_conn_id: of their catalog.
    """
    if len(tables) == 1:
        return link_from_airflow("table", lake=catalog_conn_id, name=tables[0])
    return link_from_airflow("tables", lake=catalog_conn_id)
