"""Links from a task to its job's report, its tables and Spark's UI."""

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

#: XComs of the links' addresses, pushed as soon as they are known, so that links work while the job runs and after a
#: failure
REPORT_LINK_KEY = "lakecdc_report_link"
TABLE_LINK_KEY = "lakecdc_table_link"
SPARK_UI_KEY = "spark_ui"


class _PushedLink(BaseOperatorLink):
    """A link whose address the operator pushes to XCom."""

    key: ClassVar[str]

    @property
    def xcom_key(self) -> str:
        """Return the XCom key of the address, for Airflow's web page."""
        return self.key

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the pushed address; Airflow calls this again when the task ends."""
        return str(XCom.get_value(ti_key=ti_key, key=self.key) or "")


class JobReportLink(_PushedLink):
    """A link to the job's report on the page Lakehouse."""

    name = "Job report"
    key = REPORT_LINK_KEY


class TableLink(_PushedLink):
    """A link to the job's table on the page Lakehouse; for several tables, to the list of tables."""

    name = "Table"
    key = TABLE_LINK_KEY


class SparkUiLink(_PushedLink):
    """A link to Spark's UI: of the driver while the job runs, then of the history server if there is one."""

    name = "Spark UI"
    key = SPARK_UI_KEY


def report_address(ti: Run) -> str:
    """Return the address of a job's report, relative to Airflow's page."""
    return link_from_airflow("report", dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=ti.map_index)


def table_address(catalog_conn_id: str, tables: Sequence[str]) -> str:
    """Return the address of a job's tables, relative to Airflow's page.

    :param catalog_conn_id: connection of their catalog.
    """
    if len(tables) == 1:
        return link_from_airflow("table", lake=catalog_conn_id, name=tables[0])
    return link_from_airflow("tables", lake=catalog_conn_id)
