"""The operator of the job that compacts small data files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import StorageClass, Verify


class CompactDataFilesOperator(LakecdcJobOperator, job="compact_data_files"):
    """Compact small data files and rewrite files with many deleted rows.

    :param min_input_files: number of a partition's small files from which they are compacted.
    :param small_file_ratio: files below this share of the target size are small.
    :param delete_ratio: files with at least this share of deleted rows are rewritten too.
    :param large_file_ratio: files above this multiple of the target size are split; at least 2.2, since written files
        may have twice the target size.
    :param max_equality_deletes: limit of equality-delete files that apply to a data file, above which it is rewritten;
        for deletes that ``rewrite_delete_files`` must skip. 0 means no limit.
    :param quiet_seconds: skip partitions that were written to within this many seconds; 0 skips none. Tables without
        partitions are never skipped.
    :param older_specs: rewrite all files of older partition specs to the current one.
    :param add_bloom_filters: rewrite also files without the Bloom filters of the table's property
        ``lakecdc.layout.bloom-filter-columns``.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``RewriteDataFilesOptions`` in ``lakecdc.contract``.
    """

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
        cold_after_days: float | str = 0.0,
        cold_tag: str | None = None,
        cold_storage_classes: Sequence[StorageClass] | str = (),
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
        super().__init__(options=self.options_in(locals()), **kwargs)
