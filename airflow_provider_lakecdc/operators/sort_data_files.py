"""The operator of the job that sorts data files by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Curve, Outcome, Verify


class SortDataFilesOperator(LakecdcJobOperator):
    """Sorts the rows of partitions in which too many files hold the same keys.

    :param columns: sort order; empty takes what the table was last sorted by, then its sort order, then its identifier
        fields.
    :param curve: ``linear`` sorts by the first column, then by the second, and so on; ``hilbert`` and ``zorder`` lay
        the rows along a curve through the space of all columns, so that files can be left out by each of them. Default:
        the curve that the table was last sorted by, where ``columns`` is empty; else ``linear``.
    :param min_overlap_depth: average number of files that hold a key above which a partition is sorted again; along a
        curve, times that of as many files in a grid.
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
        options = {
            "columns": columns,
            "curve": curve,
            "min_overlap_depth": min_overlap_depth,
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
