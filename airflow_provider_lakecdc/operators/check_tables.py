"""The operator of the job that checks the rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class CheckTablesOperator(LakecdcJobOperator, job="check_tables"):
    """Check rules on the rows of tables, and fail if one of severity ``error`` is broken.

    Options: ``lakecdc.contract.options.CheckTablesOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        checks: Mapping[str, Sequence[Mapping[str, Any]]] | str | None = None,
        report_values: bool | str = False,
        branch: str = "main",
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
