"""The operator of the job that computes statistics for query planners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class ComputeStatisticsOperator(LakecdcJobOperator):
    """Computes the statistics of columns and partitions where too many rows have changed since.

    :param columns: columns whose distinct values are counted; empty takes the identifier fields and the columns that
        the table is sorted by.
    :param min_changed_ratio: share of the table's rows that may have changed before statistics are stale.
    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "compute_statistics"

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
        options = {
            "columns": columns,
            "min_changed_ratio": min_changed_ratio,
            "side_tables": side_tables,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
