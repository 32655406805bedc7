"""The operator of the job that compares tables with their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.source_job import SourceJobOperator
from lakecdc.contract.job_options import Outcome


class ReconcileOperator(SourceJobOperator, job="reconcile"):
    """Compare tables with their source tables by hashes of key ranges, and list the rows that differ.

    It takes source and targets of the ingest task. Rows that differ are compared again once the table has been fed past
    the time of the first comparison, so that changes in flight are not mismatches. Only ``repair`` changes a table.

    :param ranges: number of ranges that the keys of each table are split into.
    :param sample: share of the ranges to compare, above 0 and up to 1; the choice changes with the table.
    :param max_wait: seconds to wait until a table has been fed past the time of the comparison, before rows that differ
        are compared again.
    :param max_keys: limit of differing rows in a table; above it they are only counted, not compared again or repaired.
    :param repair: load rows that differ from the source again; not for sources of type ``iceberg``.
    :param quarantine_table: as for ``ingest``; for ``repair``.
    :param report_values: show keys and bounds of ranges in the report.
    :param fail_on: by default a table that differs from its source, with outcome ``skipped``, fails the job.
    :param kwargs: see :class:`SourceJobOperator`, also for ``source``, ``targets`` and ``source_conn_id``. Other
        options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        source: Mapping[str, Any],
        targets: Sequence[Mapping[str, Any]],
        source_conn_id: str | None = None,
        ranges: int | str = 64,
        sample: float | str = 1.0,
        max_wait: float | str = 900.0,
        max_keys: int | str = 10_000,
        repair: bool | str = False,
        quarantine_table: str | None = None,
        report_values: bool | str = False,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = ("skipped",),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            source=source, targets=targets, source_conn_id=source_conn_id, options=self.options_in(locals()), **kwargs
        )
