"""The operator of the job that compares tables with their source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.source_job import SourceJobOperator
from lakecdc.contract.job_options import Outcome


class ReconcileOperator(SourceJobOperator, job="reconcile"):
    """Compare tables with their source tables by hashes of key ranges, and list the rows that differ.

    It takes source and targets of the ingest task. Rows that differ are compared again once the table has been fed past
    the time of the first comparison, so that changes in flight are not mismatches. Only ``repair`` changes a table.

    Options: ``lakecdc.contract.feeding.ReconcileOptions``. Other arguments: :class:`SourceJobOperator`.
    """

    def __init__(
        self,
        *,
        ranges: int | str = 64,
        sample: float | str = 1.0,
        max_wait: float | str = 900.0,
        max_keys: int | str = 10_000,
        repair: bool | str = False,
        quarantine_table: str | None = None,
        report_values: bool | str = False,
        fail_on: Sequence[Outcome] | str = ("skipped",),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
