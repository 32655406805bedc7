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
    :param protection: by table, what the configuration says of removals from it. The table's own properties
        ``lakecdc.policy.…`` hold as well, whether it is given or not.
    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "expire_snapshots"

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
        options = {
            "older_than": older_than,
            "max_age": max_age,
            "retain_last": retain_last,
            "protection": protection or {},
            "side_tables": side_tables,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
