"""The operator of the job that keeps tags and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class TagSnapshotsOperator(LakecdcJobOperator):
    """Keeps a tag on the last snapshot of each past day and month, and changes tags and branches on request.

    :param days: tags ``lakecdc-day-2026-01-31`` of so many past days are kept, each on the last snapshot that ``main``
        had by the end of the day; 0 keeps none.
    :param months: tags ``lakecdc-month-2026-01`` of so many past months; 0 keeps none.
    :param zone: time zone whose days and months are meant, such as ``Europe/Berlin``.
    :param changes: what else to do with tags and branches, all or nothing, in one commit with the rest.
    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "tag_snapshots"

    def __init__(
        self,
        *,
        days: int | str = 7,
        months: int | str = 0,
        zone: str = "UTC",
        changes: Sequence[Mapping[str, Any]] | str = (),
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "days": days,
            "months": months,
            "zone": zone,
            "changes": changes,
            "side_tables": side_tables,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
