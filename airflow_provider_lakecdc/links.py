"""The links from a task to what its job shows while it runs and leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_lakecdc import settings

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: XComs under which the links' addresses are kept; they are pushed as soon as they are known, so that the links work
#: while the job runs and after it has failed
REPORT_LINK_KEY = "lakecdc_report_link"
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
    """Opens the job's report; Airflow shows it where a browser can (see ``[lakecdc] documents_url``)."""

    name = "Job report"
    key = REPORT_LINK_KEY


class SparkUiLink(_PushedLink):
    """Opens Spark's own page on the driver, as long as the job runs."""

    name = "Spark UI"
    key = SPARK_UI_KEY


def report_address(report_uri: str) -> str | None:
    """Where a browser finds a report: below ``documents_url``, or at its URI if that is an address of the web.

    :return: None if it finds it nowhere; a page from the web must not open files, and knows no object store.
    """
    base, folder = settings.documents_url(), settings.documents_uri()
    if base and report_uri.startswith(folder):
        return base + report_uri.removeprefix(folder)
    return report_uri if report_uri.startswith(("http://", "https://")) else None
