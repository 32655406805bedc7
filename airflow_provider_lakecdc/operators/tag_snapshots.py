"""The operator of the job that keeps tags and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class TagSnapshotsOperator(LakecdcJobOperator):
    """Keeps a tag on the last snapshot of each past day and month, and changes tags and branches on request.

    :param days: past days whose tags ``lakecdc-day-2026-01-31`` are kept; 0 keeps none.
    :param months: past months whose tags ``lakecdc-month-2026-01`` are kept; 0 keeps none.
    :param zone: time zone whose days and months are meant.
    :param changes: changes of tags and branches, all or nothing, each with the fields of
        ``lakecdc.contract.options.RefChange``, such as ``{"action": "create", "name": "audited"}``.
    :param side_tables: further tables to work on, each only if it exists.
    :param dry_run: plan, change nothing.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "tag_snapshots"

    def __init__(
        self,
        *,
        days: int | str = 7,
        months: int | str = 0,
        zone: str = "UTC",
        changes: Sequence[Mapping[str, Any]] = (),
        side_tables: str | Sequence[str] = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
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
