"""The operator of the job that replays quarantined messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import SourceJobOperator
from lakecdc.contract.job_options import Outcome


class ReplayQuarantineOperator(SourceJobOperator):
    """Replay quarantined messages and rows, after the feed or the target has been corrected.

    It takes source and targets of the ingest task as they are now. Messages keep their order key, so an old one never
    overwrites a newer state. What can be applied leaves the quarantine, the rest stays. All of it is one batch,
    whatever the data interval of the run.

    :param source: the ``source`` of the job spec, see ``lakecdc.contract.sources``. (templated)
    :param targets: the ``target`` of the job spec, one object per table. (templated)
    :param source_conn_id: connection with the source's address and login: of type ``postgres``, ``mysql`` or ``kafka``;
        for a source of type ``jdbc`` of a database or of type ``jdbc``. (templated)
    :param rules: replay only messages that broke one of these rules, such as ``type``; default: all.
    :param max_batches: micro-batches per run; 0 means until the source's end at the start.
    :param parallel_tables: tables that are written in parallel.
    :param max_delete_files: limit of equality-delete files at which a table of mode ``upsert`` takes no further batch
        until ``rewrite_delete_files`` has run, and one of mode ``auto`` merges; 0 means no limit.
    :param quarantine_table: ``namespace.name`` of the table for messages that cannot be applied; default:
        ``lakecdc_quarantine`` in the target's namespace. ``{namespace}`` and ``{table}`` are replaced by the target's,
        such as in ``restricted.{table}_quarantine``.
    :param max_quarantined_fraction: share of a batch's messages, 0 to 1, above which the table fails instead.
    :param report_values: show values of rows in reports and logs if they are the reason of a failure.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "replay_quarantine"

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
            source=source,
            targets=targets,
            source_conn_id=source_conn_id,
            options=self.options_among(locals()),
            **kwargs,
        )
