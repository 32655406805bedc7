"""The operator of the job that compacts small data files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.rewriting import StorageClass, Verify


class CompactDataFilesOperator(LakecdcJobOperator, job="compact_data_files"):
    """Compact small data files and rewrite files with many deleted rows.

    Options: ``lakecdc.contract.rewriting.CompactDataFilesOptions``. Other arguments: :class:`LakecdcJobOperator`.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
