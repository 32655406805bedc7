"""The operator of the job that computes statistics for query planners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class ComputeStatisticsOperator(LakecdcJobOperator, job="compute_statistics"):
    """Compute statistics of columns and partitions after enough rows have changed.

    Options: ``lakecdc.contract.rewriting.ComputeStatisticsOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        columns: Sequence[str] | str = (),
        min_changed_ratio: float | str = 0.1,
        side_tables: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
