"""The link from a task to the report of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_lakecdc import settings

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: XCom under which the link's address is kept; the operator pushes it before it submits, so that the link works
#: while the job runs and after it has failed
REPORT_LINK_KEY = "lakecdc_report_link"


class JobReportLink(BaseOperatorLink):
    """Opens the job's report; Airflow shows it where a browser can (see ``[lakecdc] documents_url``)."""

    name = "Job report"

    @property
    def xcom_key(self) -> str:
        """XCom key from which Airflow's web page takes the address."""
        return REPORT_LINK_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The address that the operator has pushed; Airflow asks once more when the task ends."""
        found = XCom.get_value(ti_key=ti_key, key=REPORT_LINK_KEY)
        return str(found or "")


def report_address(report_uri: str) -> str | None:
    """Where a browser finds a report: below ``documents_url``, or at its URI if that is an address of the web.

    :return: None if it finds it nowhere; a page from the web must not open files, and knows no object store.
    """
    base, folder = settings.documents_url(), settings.documents_uri()
    if base and report_uri.startswith(folder):
        return base + report_uri.removeprefix(folder)
    return report_uri if report_uri.startswith(("http://", "https://")) else None
