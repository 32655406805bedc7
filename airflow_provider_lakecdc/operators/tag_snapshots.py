"""The operator of the job that maintains tags and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class TagSnapshotsOperator(LakecdcJobOperator, job="tag_snapshots"):
    """Tag the last snapshot of each past day and month, and change tags and branches on request.

    Options: ``lakecdc.contract.expiring.TagSnapshotsOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        days: int | str = 7,
        months: int | str = 0,
        zone: str = "UTC",
        changes: Sequence[Mapping[str, Any]] | str = (),
        side_tables: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
