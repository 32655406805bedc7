"""The operator of the job that exports changes of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class ExportChangesOperator(LakecdcJobOperator, job="export_changes"):
    """Export the changes of tables since the last export, to append-only tables or to folders of files.

    :param destinations: destination by table.
    :param since: start of the first export to a destination: a snapshot id, a tag, a branch, or an ISO-8601 timestamp.
        Default: all rows of the table, as inserts.
    :param until: end of the run, in the same form; default: the newest snapshot.
    :param history_tables: by table, its history table, to export every single change instead of the net changes.
    :param consumer: name of a consumer that is registered with each table and advanced by each export, so that expiry
        keeps what is not exported yet.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        destinations: Mapping[str, Mapping[str, Any]] | str | None = None,
        since: str | None = None,
        until: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        consumer: str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
