"""The operator of the job that hands on what has changed in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class ExportChangesOperator(LakecdcJobOperator):
    """Hands on what has changed in tables since the last export, to tables that it appends to or to folders of files.

    :param destinations: by table, where its changes go.
    :param since: where a destination without exports begins: the id of a snapshot, a tag, a branch, or an ISO-8601
        moment. Default: with all rows of the table, as inserts.
    :param until: the same, how far the run goes; default: the newest snapshot.
    :param history_tables: by table, its history table, where every step is to be exported and not what the steps come
        to.
    :param consumer: name of a consumer that is registered with each table and moved on with each export, so that expiry
        keeps what is not exported yet.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "export_changes"

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
        options = {
            "destinations": destinations or {},
            "since": since,
            "until": until,
            "history_tables": history_tables or {},
            "consumer": consumer,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
