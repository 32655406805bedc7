"""Rescheduling of tasks that wait for leases of tables, without using a worker or a try."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_provider_lakecdc.submit.failures import counts_as_failure
from lakecdc.contract.report import LEASE_HOLDER, JobReport

log = logging.getLogger(__name__)

#: wait before the job is submitted again
PAUSE = timedelta(minutes=1)
#: limit after which a lease of another run is a conflict
LONGEST = timedelta(hours=6)


def reschedule_if_leased(context: Context, report: JobReport | None, fail_on: Sequence[str]) -> None:
    """Reschedule the task if it failed only for tables whose lease another run has.

    Tasks without a scheduler, such as those of a command, are not rescheduled.

    :param fail_on: further outcomes that count as failures.
    :raises AirflowRescheduleException: the task runs again in a minute.
    """
    holders = _holders(report, fail_on)
    first_reschedule = getattr(context["ti"], "get_first_reschedule_date", None)
    if not holders or first_reschedule is None:
        return
    moment = datetime.now(UTC)
    if moment - (first_reschedule(context) or moment) > LONGEST:
        return
    for table, holder in holders.items():
        log.warning("%s: %s has the lease; the task runs again in %s.", table, holder, PAUSE)
    raise AirflowRescheduleException(moment + PAUSE)


def _holders(report: JobReport | None, fail_on: Sequence[str]) -> dict[str, str]:
    """Return the lease holders of the failed tables; empty if a table failed for another reason."""
    if report is None or report.error:
        return {}
    holders = {
        table.table: table.metrics.get(LEASE_HOLDER) for table in report.tables if counts_as_failure(table, fail_on)
    }
    return {table: str(holder) for table, holder in holders.items()} if all(holders.values()) else {}
