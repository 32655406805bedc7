"""The operator of the job that maintains slowly changing dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class Scd2Operator(LakecdcJobOperator, job="scd2"):
    """Maintain tables with the versions of other tables' rows (slowly changing dimensions, type 2).

    Options: ``lakecdc.contract.past.Scd2Options``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        history_tables: Mapping[str, str] | str | None = None,
        dimensions: Mapping[str, str] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
