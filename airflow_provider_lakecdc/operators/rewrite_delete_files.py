"""The operator of the job that rewrites delete files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome, RewriteDeleteFilesOptions, Verify


class RewriteDeleteFilesOperator(LakecdcJobOperator):
    """Rewrites equality deletes as position deletes (format v2) or deletion vectors (v3), and merges position deletes.

    :param engine: ``exact`` lets Iceberg's reader mark deleted rows, ``join`` matches keys in Spark, ``native`` in
        Python tasks, ``auto`` chooses.
    :param position_deletes: ``merge`` rewrites position deletes too, so that each data file has one delete file of its
        own, and drops those that apply to nothing; ``keep`` leaves them unless equality deletes hit the same file.
    :param min_input_files: position-delete files of one data file from which on they are merged, 2 or more.
    :param branch: branch to work on.
    :param verify: how much is proven before the commit: ``full``, ``sample``, ``off``, or ``auto``, which is ``full``
        unless that costs more than the work itself.
    :param verify_off_reason: why ``off``; required then and kept in the report.
    :param max_runtime: seconds after which no further group of scopes is begun; what was committed stays, and the
        report says how many groups are left. 0 is no limit.
    :param keep_failed_files: leave the files of a failed proof for inspection instead of deleting them; the report says
        where they are.
    :param side_tables: further tables to work on, each only if it exists, such as
        ``lakecdc.metadata.names.side_tables("shop.orders")``.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "rewrite_delete_files"

    def __init__(
        self,
        *,
        engine: Literal["auto", "exact", "join", "native"] | str = "auto",
        position_deletes: Literal["merge", "keep"] | str = "merge",
        min_input_files: int | str = 2,
        branch: str = "main",
        verify: Verify | str = RewriteDeleteFilesOptions.verify,
        verify_off_reason: str | None = None,
        max_runtime: float | str = 0.0,
        keep_failed_files: bool | str = False,
        side_tables: str | Sequence[str] = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "engine": engine,
            "position_deletes": position_deletes,
            "min_input_files": min_input_files,
            "branch": branch,
            "verify": verify,
            "verify_off_reason": verify_off_reason,
            "max_runtime": max_runtime,
            "keep_failed_files": keep_failed_files,
            "side_tables": side_tables,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
