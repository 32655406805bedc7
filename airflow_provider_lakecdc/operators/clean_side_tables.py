"""The operator of the job that cleans the tables beside targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class CleanSideTablesOperator(LakecdcJobOperator):
    """Removes what nobody needs any more from the tables that ingestion keeps beside its targets, and tells the rest.

    :param quarantine_table: as for ``ingest``.
    :param dismiss: messages in quarantine that nobody wants to replay; those of tables that this run does not clean
        stay.
    :param forget_tables: targets that exist no more, whose rows go from the tables that cleaned ones share with them.
    :param protection: by table, what the configuration says of removals from it. The table's own properties
        ``lakecdc.policy.…`` hold as well, whether it is given or not.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "clean_side_tables"

    def __init__(
        self,
        *,
        quarantine_table: str | None = None,
        dismiss: Sequence[Mapping[str, Any]] | str = (),
        forget_tables: Sequence[str] | str = (),
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
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
