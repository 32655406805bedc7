"""The operator of the job that sorts data files by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import Curve, StorageClass, Verify


class SortDataFilesOperator(LakecdcJobOperator, job="sort_data_files"):
    """Sort the rows of partitions where too many files overlap in their keys.

    :param columns: sort order; default: the table's last sort, else its sort order, else its identifier fields.
    :param curve: ``linear`` sorts by the first column, then the second, and so on; ``hilbert`` and ``zorder`` sort
        along a curve through the space of all columns, so that filters on each of them skip files. Default: the curve
        of the table's last sort if ``columns`` is empty, else ``linear``.
    :param min_overlap_depth: average number of files with the same key above which a partition is sorted again; with a
        curve, a multiple of that number for as many files in a grid.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``RewriteDataFilesOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        columns: Sequence[str] | str = (),
        curve: Curve | str | None = None,
        min_overlap_depth: float | str = 1.5,
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
