"""The operator of the job that rolls tables back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class RollbackTablesOperator(LakecdcJobOperator, job="rollback_tables"):
    """Roll tables and their history tables back to a snapshot, tag or moment, and keep the undone state reachable.

    Options: ``lakecdc.contract.expiring.RollbackTablesOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        to: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        keep_for: float | str = 2_592_000.0,
        expired_rows: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
