"""The operator of the job that cleans the tables beside targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class CleanSideTablesOperator(LakecdcJobOperator):
    """Removes what nobody needs any more from the tables that ingestion keeps beside its targets, and tells the rest.

    :param quarantine_table: as for the ingest task.
    :param dismiss: messages in quarantine that nobody wants to replay, each with the fields of
        ``lakecdc.contract.options.Dismissal``.
    :param forget_tables: targets that exist no more, whose rows go from the tables that ``tables`` share with them.
    :param protection: by table, what the configuration says of removals from it, with the fields of
        ``lakecdc.contract.protection.Protection``; a plan has it. The table's own properties hold in any case.
    :param dry_run: look and count, change nothing.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``nothing``.
    :param kwargs: see :class:`LakecdcJobOperator`; ``tables`` are the targets.
    """

    job_name: ClassVar[str] = "clean_side_tables"

    def __init__(
        self,
        *,
        quarantine_table: str | None = None,
        dismiss: Sequence[Mapping[str, Any]] = (),
        forget_tables: Sequence[str] = (),
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "quarantine_table": quarantine_table,
            "dismiss": dismiss,
            "forget_tables": forget_tables,
            "protection": protection or {},
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
