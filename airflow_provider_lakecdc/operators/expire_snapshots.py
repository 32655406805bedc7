"""The operator of the job that expires snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class ExpireSnapshotsOperator(LakecdcJobOperator):
    """Expires old snapshots and removes the files that only they held.

    :param older_than: snapshots made before this ISO-8601 moment expire; default: ``max_age`` before now.
    :param max_age: age in seconds, used without ``older_than``.
    :param retain_last: snapshots of the main branch that are kept whatever their age.
    :param side_tables: further tables to work on, each only if it exists, such as
        ``lakecdc.metadata.names.side_tables("shop.orders")``.
    :param protection: by table, what the configuration says of removals from it, with the fields of
        ``lakecdc.contract.protection.Protection``; a plan has it. The table's own properties hold in any case.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "expire_snapshots"

    def __init__(
        self,
        *,
        older_than: str | None = None,
        max_age: float | str = 5 * 24 * 3600.0,
        retain_last: int | str = 5,
        side_tables: str | Sequence[str] = (),
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "older_than": older_than,
            "max_age": max_age,
            "retain_last": retain_last,
            "side_tables": side_tables,
            "protection": protection or {},
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
