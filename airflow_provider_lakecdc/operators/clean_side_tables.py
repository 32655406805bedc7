"""The operator of the job that cleans side tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class CleanSideTablesOperator(LakecdcJobOperator, job="clean_side_tables"):
    """Remove obsolete rows from the side tables of targets, and report the remaining ones.

    Options: ``lakecdc.contract.expiring.CleanSideTablesOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        quarantine_table: str | None = None,
        dismiss: Sequence[Mapping[str, Any]] | str = (),
        forget_tables: Sequence[str] | str = (),
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
