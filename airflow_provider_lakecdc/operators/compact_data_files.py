"""The operator of the job that compacts small data files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import Verify


class CompactDataFilesOperator(LakecdcJobOperator):
    """Compact small data files and rewrite files with many deleted rows.

    :param min_input_files: number of a partition's small files from which they are compacted.
    :param small_file_ratio: files below this share of the target size are small.
    :param delete_ratio: files with at least this share of deleted rows are rewritten too.
    :param large_file_ratio: files above this multiple of the target size are split; at least 2.2, since written files
        may have twice the target size.
    :param max_equality_deletes: limit of equality-delete files that apply to a data file, above which it is rewritten;
        for deletes that ``rewrite_delete_files`` must skip. 0 means no limit.
    :param quiet_seconds: skip partitions with writes in the last so many seconds; 0 skips none. Tables without
        partitions are never skipped.
    :param older_specs: rewrite all files of older partition specs to the current one.
    :param add_bloom_filters: rewrite also files without the Bloom filters of the table's property
        ``lakecdc.layout.bloom-filter-columns``.
    :param branch: the branch to rewrite.
    :param target_file_size_bytes: target size of files; 0 means the table's ``write.target-file-size-bytes``, or if it
        is not set, a size that suits the table's.
    :param max_group_bytes: bytes rewritten per commit.
    :param verify: what is proven before the commit: all files, a stated sample, or nothing; ``auto`` means all files
        unless that costs more than the work itself.
    :param verify_off_reason: the reason for ``off``, which requires one; the report shows it.
    :param max_runtime: seconds after which no further group is started; 0 means no limit.
    :param keep_failed_files: keep the files of a failed proof for inspection instead of deleting them; the report lists
        them, and ``remove_orphan_files`` removes them once they are old enough.
    :param side_tables: ``namespace.name`` of further tables to work on if they exist: side tables that ingestion
        creates when it needs them (``lakecdc.metadata.names.side_tables``).
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
        super().__init__(options=self.options_among(locals()), **kwargs)
