"""The operator of the job that replays quarantined messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.source_job import SourceJobOperator
from lakecdc.contract.job_options import Outcome


class ReplayQuarantineOperator(SourceJobOperator, job="replay_quarantine"):
    """Replay quarantined messages and rows, after the feed or the target has been corrected.

    It takes the current source and targets of the ingest task. Messages keep their order key, so an old one never
    overwrites a newer state. Messages that can be applied leave the quarantine, the others stay. All are one batch,
    regardless of the data interval of the run.

    :param rules: replay only messages that broke one of these rules, such as ``type``; default: all.
    :param kwargs: see :class:`SourceJobOperator`, also for ``source``, ``targets`` and ``source_conn_id``. Other
        options: ``FeedingOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        source: Mapping[str, Any],
        targets: Sequence[Mapping[str, Any]],
        source_conn_id: str | None = None,
        rules: Sequence[str] | str = (),
        max_batches: int | str = 0,
        parallel_tables: int | str = 4,
        max_delete_files: int | str = 0,
        quarantine_table: str | None = None,
        max_quarantined_fraction: float | str = 1.0,
        report_values: bool | str = False,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            source=source, targets=targets, source_conn_id=source_conn_id, options=self.options_in(locals()), **kwargs
        )
