"""The operator of the job that adapts the number of a table's buckets to its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import Verify


class RebucketOperator(LakecdcJobOperator, job="rebucket"):
    """Double or halve the number of buckets of tables that are too large or small for it, and move the rows.

    :param target_bucket_bytes: target size of a bucket, or of one in each partition of the other fields; 0 means four
        times the target size of a file.
    :param tolerance: the number of buckets grows if they are on average larger than the target by this factor, and
        shrinks if they are smaller than half of it by this factor; at least 1.
    :param min_buckets: lower limit for shrinking.
    :param max_buckets: upper limit for growing.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``RewritingOptions`` in ``lakecdc.contract``.
    """

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
        super().__init__(options=self.options_in(locals()), **kwargs)
