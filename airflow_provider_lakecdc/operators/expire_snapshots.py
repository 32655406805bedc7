"""The operator of the job that expires snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class ExpireSnapshotsOperator(LakecdcJobOperator, job="expire_snapshots"):
    """Expire old snapshots and delete files that only they reference.

    Options: ``lakecdc.contract.expiring.ExpireSnapshotsOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        older_than: str | None = None,
        max_age: float | str = 432_000.0,
        retain_last: int | str = 5,
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        side_tables: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
