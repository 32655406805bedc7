"""The operator of the job that computes statistics for query planners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class ComputeStatisticsOperator(LakecdcJobOperator, job="compute_statistics"):
    """Compute statistics of columns and partitions after enough rows have changed.

    :param columns: columns to count distinct values of; default: the identifier fields and the sort columns.
    :param min_changed_ratio: share of changed rows above which statistics are stale.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``MaintenanceOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        columns: Sequence[str] | str = (),
        min_changed_ratio: float | str = 0.1,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
