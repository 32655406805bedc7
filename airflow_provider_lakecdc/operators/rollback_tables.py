"""The operator of the job that rolls tables back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class RollbackTablesOperator(LakecdcJobOperator, job="rollback_tables"):
    """Roll tables and their history tables back to a snapshot, tag or moment, and keep the undone state reachable.

    :param to: a snapshot id, a tag, a branch, or an ISO-8601 timestamp, which means the newest snapshot of ``main`` at
        that time.
    :param history_tables: history table by table; it is rolled back to the matching state.
    :param keep_for: seconds for which a tag keeps the undone state.
    :param expired_rows: roll back even beyond a removal of old rows, which restores them.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

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
        super().__init__(options=self.options_in(locals()), **kwargs)
