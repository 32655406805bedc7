"""The operator of the job that turns equality deletes into position deletes or deletion vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome, Verify


class RewriteDeleteFilesOperator(LakecdcJobOperator):
    """Rewrites equality deletes as position deletes (format v2) or deletion vectors (v3).

    :param engine: ``exact`` lets Iceberg's reader mark deleted rows, ``join`` matches keys in Spark, ``auto`` chooses.
    :param verify: how much is proven before the commit: ``full``, ``sample`` or ``off``.
    :param verify_off_reason: why ``off``; required then and kept in the report.
    :param max_runtime: seconds after which no further group is begun; 0 is no limit.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "rewrite_delete_files"

    def __init__(
        self,
        *,
        engine: Literal["auto", "exact", "join"] | str = "auto",
        verify: Verify | str = "full",
        verify_off_reason: str | None = None,
        max_runtime: float | str = 0.0,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "engine": engine,
            "verify": verify,
            "verify_off_reason": verify_off_reason,
            "max_runtime": max_runtime,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
