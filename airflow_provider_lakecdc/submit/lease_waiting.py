"""Wait for the leases of tables without a worker, and without a failed try."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_provider_lakecdc.submit.failures import counts_as_failure
from lakecdc.contract.report import LEASE_HOLDER

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lakecdc.contract.report import JobReport

log = logging.getLogger(__name__)

#: after which the job is submitted again
PAUSE = timedelta(minutes=1)
#: after which a held lease is a conflict like any other
LONGEST = timedelta(hours=6)


def reschedule_if_leased(context: Context, report: JobReport | None, fail_on: Sequence[str]) -> None:
    """Reschedule the task if all that has failed are tables whose lease another run holds.

    A task that no scheduler runs, as that of a command, is left to its failure.

    :param fail_on: outcomes to count as failures although they are not.
    :raises AirflowRescheduleException: the task runs again in a minute.
    """
    held = _holders(report, fail_on)
    first_reschedule = getattr(context["ti"], "get_first_reschedule_date", None)
    if not held or first_reschedule is None:
        return
    moment = datetime.now(UTC)
    if moment - (first_reschedule(context) or moment) > LONGEST:
        return
    for table, holder in held.items():
        log.warning("%s: the lease is held by %s; the task runs again in %s.", table, holder, PAUSE)
    raise AirflowRescheduleException(moment + PAUSE)


def _holders(report: JobReport | None, fail_on: Sequence[str]) -> dict[str, str]:
    """Return who holds the leases of the tables that have failed; empty if one has failed otherwise."""
    if report is None or report.error:
        return {}
    holders = {
        table.table: table.metrics.get(LEASE_HOLDER) for table in report.tables if counts_as_failure(table, fail_on)
    }
    return {table: str(holder) for table, holder in holders.items()} if all(holders.values()) else {}
