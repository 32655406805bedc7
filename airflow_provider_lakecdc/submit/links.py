"""Links from a task to its job's report, its tables and Spark's UI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_lakecdc.observe.addresses import link_from_airflow

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

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


def push_links(context: Context, catalog_conn_id: str, tables: Sequence[str]) -> None:
    """Push the addresses of a job's report and tables, relative to Airflow's page."""
    ti = context["ti"]
    mapped = None if ti.map_index is None or ti.map_index < 0 else ti.map_index
    report = link_from_airflow("report", dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=mapped)
    page, name = ("table", tables[0]) if len(tables) == 1 else ("tables", None)
    ti.xcom_push(key=REPORT_LINK_KEY, value=report)
    ti.xcom_push(key=TABLE_LINK_KEY, value=link_from_airflow(page, lake=catalog_conn_id, name=name))
