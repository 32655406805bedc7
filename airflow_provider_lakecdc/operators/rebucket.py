"""The operator of the job that lets the number of a table's buckets follow its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome, Verify


class RebucketOperator(LakecdcJobOperator):
    """Doubles or halves the number of buckets of tables that have outgrown or undercut them, and moves the rows.

    :param target_bucket_bytes: size aimed at of a bucket, or of one in each partition of the other fields; 0 is four
        times the target size of a file.
    :param tolerance: the number of buckets grows once they are so many times as large as the target on average, and
        shrinks once they are so many times as small as half of it; at least 1.
    :param min_buckets: the number does not shrink below this.
    :param max_buckets: the number does not grow above this.
    :param target_file_size_bytes: size aimed at; 0 takes the table's ``write.target-file-size-bytes``, or without that
        what suits the table's size.
    :param max_group_bytes: bytes rewritten per commit.
    :param verify: how much is proven before the commit: all files, a stated sample, or nothing; ``auto`` is all files
        unless that costs more than the work itself.
    :param verify_off_reason: why ``off``; required then and kept in the report.
    :param max_runtime: seconds after which no further group is begun; 0 is no limit.
    :param keep_failed_files: leave the files of a failed proof for inspection instead of deleting them; the report says
        where they are, and ``remove_orphan_files`` takes them once they are old enough.
    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "rebucket"

    def __init__(
        self,
        *,
        target_bucket_bytes: int | str = 0,
        tolerance: float | str = 1.5,
        min_buckets: int | str = 1,
        max_buckets: int | str = 1_024,
        target_file_size_bytes: int | str = 0,
        max_group_bytes: int | str = 10_737_418_240,
        verify: Verify | str = "full",
        verify_off_reason: str | None = None,
        max_runtime: float | str = 0.0,
        keep_failed_files: bool | str = False,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "target_bucket_bytes": target_bucket_bytes,
            "tolerance": tolerance,
            "min_buckets": min_buckets,
            "max_buckets": max_buckets,
            "target_file_size_bytes": target_file_size_bytes,
            "max_group_bytes": max_group_bytes,
            "verify": verify,
            "verify_off_reason": verify_off_reason,
            "max_runtime": max_runtime,
            "keep_failed_files": keep_failed_files,
            "side_tables": side_tables,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
