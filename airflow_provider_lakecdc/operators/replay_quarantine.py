"""The operator of the job that enters quarantined messages again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecdc.operators.ingest import IngestOperator
from lakecdc.contract.options import Outcome

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplayQuarantineOperator(IngestOperator):
    """Enters messages and rows again that could not be applied, after the feed or the target has been corrected.

    It takes source and targets of the ingest task as they are now. Messages keep the order key they had, so that an
    old one never overwrites a newer state; what can be applied leaves the quarantine, the rest stays.

    :param source: the ``source`` of the ingest task. (templated)
    :param targets: the targets of the ingest task. (templated)
    :param source_conn_id: its connection. (templated)
    :param rules: enter only messages that broke one of these rules, such as ``type``; default: all.
    :param max_batches: has no effect here; everything that waits is one batch.
    :param parallel_tables: see :class:`IngestOperator`, like the options after it.
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
        decode_engine: str = "auto",
        max_delete_files: int | str = 0,
        quarantine_table: str | None = None,
        max_quarantined_fraction: float | str = 1.0,
        report_values: bool | str = False,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            source=source,
            targets=targets,
            source_conn_id=source_conn_id,
            max_batches=max_batches,
            parallel_tables=parallel_tables,
            decode_engine=decode_engine,
            max_delete_files=max_delete_files,
            quarantine_table=quarantine_table,
            max_quarantined_fraction=max_quarantined_fraction,
            report_values=report_values,
            dry_run=dry_run,
            fail_on=fail_on,
            **kwargs,
        )
        # there is nothing to load
        del self.options["reload"]
        self.options["rules"] = rules

    def check_run(self, context: Context) -> None:
        """Any run may replay: the messages are what waits now, whatever the data interval."""
