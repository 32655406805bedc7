"""The operator of the job that expires snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class ExpireSnapshotsOperator(LakecdcJobOperator, job="expire_snapshots"):
    """Expire old snapshots and delete files that only they reference.

    :param older_than: ISO-8601 timestamp; older snapshots expire. Default: ``max_age`` before now.
    :param max_age: seconds; used without ``older_than``.
    :param retain_last: number of the newest snapshots of the main branch that never expire.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``RemovingOptions``, ``MaintenanceOptions`` in
        ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        older_than: str | None = None,
        max_age: float | str = 432_000.0,
        retain_last: int | str = 5,
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
