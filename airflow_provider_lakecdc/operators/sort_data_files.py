"""The operator of the job that sorts data files by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import Curve, Verify


class SortDataFilesOperator(LakecdcJobOperator):
    """Sort the rows of partitions where too many files overlap in their keys.

    :param columns: sort order; default: the table's last sort, else its sort order, else its identifier fields.
    :param curve: ``linear`` sorts by the first column, then the second, and so on; ``hilbert`` and ``zorder`` sort
        along a curve through the space of all columns, so that filters on each of them skip files. Default: the curve
        of the table's last sort if ``columns`` is empty, else ``linear``.
    :param min_overlap_depth: average number of files with the same key above which a partition is sorted again; with a
        curve, a multiple of that number for as many files in a grid.
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

    job_name: ClassVar[str] = "sort_data_files"

    def __init__(
        self,
        *,
        columns: Sequence[str] | str = (),
        curve: Curve | str | None = None,
        min_overlap_depth: float | str = 1.5,
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
