"""The operator of the job that sets tables back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class RollbackTablesOperator(LakecdcJobOperator):
    """Sets tables back to a snapshot, tag or moment, their history tables with them, and keeps what they were.

    :param to: the id of a snapshot, a tag, a branch, or an ISO-8601 moment, which stands for the newest snapshot that
        ``main`` had by then.
    :param history_tables: by table, its history table, which is set to the state that goes with it.
    :param keep_for: seconds for which a tag keeps what the table was before.
    :param expired_rows: set it back also beyond a removal of old rows, which brings these back.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "rollback_tables"

    def __init__(
        self,
        *,
        to: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        keep_for: float | str = 2_592_000.0,
        expired_rows: bool | str = False,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "to": to,
            "history_tables": history_tables or {},
            "keep_for": keep_for,
            "expired_rows": expired_rows,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
