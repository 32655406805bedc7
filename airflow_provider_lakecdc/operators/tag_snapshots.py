"""The operator of the job that maintains tags and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class TagSnapshotsOperator(LakecdcJobOperator, job="tag_snapshots"):
    """Tag the last snapshot of each past day and month, and change tags and branches on request.

    :param days: number of past days with a tag ``lakecdc-day-2026-01-31`` on the last snapshot of ``main`` at the end
        of the day; 0 means none.
    :param months: number of past months with a tag ``lakecdc-month-2026-01``; 0 means none.
    :param zone: time zone of days and months, such as ``Europe/Berlin``.
    :param changes: further changes of tags and branches, in one atomic commit with the rest.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``MaintenanceOptions`` in ``lakecdc.contract``.
    """

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
        super().__init__(options=self.options_in(locals()), **kwargs)
