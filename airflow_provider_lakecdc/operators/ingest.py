"""The operator of the job that feeds tables with change data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators.source_job import SourceJobOperator
from lakecdc.contract.job_options import Outcome

#: types of sources that are read from the end of the last run, regardless of the run's data interval
CURSOR_SOURCES = frozenset({"files", "kafka", "mysql", "postgres"})


class IngestOperator(SourceJobOperator, job="ingest"):
    """Feed Iceberg tables with the changes of one source, from the position of each table.

    A run reads its data interval from a source of type ``jdbc``, unless the source has an ``interval`` (null with an
    integer as the cursor). Logs of databases, topics and files are cursors: a run reads what is new since the last one
    and ignores its data interval. A backfill would read nothing or the wrong thing, so it is refused.

    :param reload: targets, ``namespace.name``, to load in full again, ``*`` for all: readers see the old rows until the
        new ones replace them in one commit. Only for sources of type ``postgres`` and ``mysql``.
    :param kwargs: see :class:`SourceJobOperator`, also for ``source``, ``targets`` and ``source_conn_id``. Other
        options: ``FeedingOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        source: Mapping[str, Any],
        targets: Sequence[Mapping[str, Any]],
        source_conn_id: str | None = None,
        reload: Sequence[str] | str = (),
        max_batches: int | str = 0,
        parallel_tables: int | str = 4,
        max_delete_files: int | str = 0,
        quarantine_table: str | None = None,
        max_quarantined_fraction: float | str = 0.1,
        report_values: bool | str = False,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            source=source, targets=targets, source_conn_id=source_conn_id, options=self.options_in(locals()), **kwargs
        )

    def check_run(self, context: Context) -> None:
        """Refuse a backfill of a cursor source, and give a source addressed by time the run's data interval.

        :raises JobBadInputError: the run is such a backfill.
        """
        kind = self.source.get("type", "postgres" if self.source_conn_id else None)
        if kind == "jdbc" and "interval" not in self.source:
            ends = {"start": context.get("data_interval_start"), "end": context.get("data_interval_end")}
            interval = {name: moment.isoformat() if moment else "" for name, moment in ends.items()}
            self.source = {**self.source, "interval": interval}
        run = context.get("dag_run")
        is_cursor = kind in CURSOR_SOURCES or (kind == "jdbc" and self.source["interval"] is None)
        if run is not None and run.run_type == "backfill" and is_cursor:
            raise JobBadInputError(
                f"A source of type {kind!r} is a cursor: it cannot return the changes of a past interval, "
                f"so the backfill run {run.run_id} would load other changes.",
                hint="Make a full load instead: run this DAG once with the option reload (Postgres, MySQL), drop the "
                "table, or give the target a new name; a table without a position is loaded in full. Then delete the "
                "backfill.",
            )
