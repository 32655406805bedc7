"""The operator of the job that joins small data files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome, Verify


class CompactDataFilesOperator(LakecdcJobOperator):
    """Joins small data files and rewrites files of which many rows are deleted.

    :param min_input_files: small files a partition needs before it is worth a rewrite.
    :param small_file_ratio: a file below this share of the target size is small.
    :param delete_ratio: a file with at least this share of its rows deleted is rewritten as well.
    :param large_file_ratio: a file above this multiple of the target size is split; at least 2.2, since a file may be
        written twice as large as the target.
    :param max_equality_deletes: equality-delete files that may apply to a data file before it is rewritten, for deletes
        that ``rewrite_delete_files`` leaves; 0 is no limit.
    :param quiet_seconds: partitions written to within that many seconds are left alone; 0 waits for none. A table
        without partitions is not left alone.
    :param older_specs: move the rows of all files of older partition specs to the current one.
    :param add_bloom_filters: rewrite also files that lack Bloom filters which the table's property
        ``lakecdc.layout.bloom-filter-columns`` asks for.
    :param branch: branch to work on.
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

    job_name: ClassVar[str] = "compact_data_files"

    def __init__(
        self,
        *,
        min_input_files: int | str = 5,
        small_file_ratio: float | str = 0.75,
        delete_ratio: float | str = 0.3,
        large_file_ratio: float | str = 2.5,
        max_equality_deletes: int | str = 0,
        quiet_seconds: float | str = 0.0,
        older_specs: bool | str = False,
        add_bloom_filters: bool | str = False,
        branch: str = "main",
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
            "min_input_files": min_input_files,
            "small_file_ratio": small_file_ratio,
            "delete_ratio": delete_ratio,
            "large_file_ratio": large_file_ratio,
            "max_equality_deletes": max_equality_deletes,
            "quiet_seconds": quiet_seconds,
            "older_specs": older_specs,
            "add_bloom_filters": add_bloom_filters,
            "branch": branch,
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
