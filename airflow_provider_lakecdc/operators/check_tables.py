"""The operator of the job that checks the rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class CheckTablesOperator(LakecdcJobOperator, job="check_tables"):
    """Check rules on the rows of tables, and fail if one of severity ``error`` is broken.

    :param checks: checks by table.
    :param report_values: show keys and checked values of some failing rows in the report.
    :param branch: the branch to check.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        checks: Mapping[str, Sequence[Mapping[str, Any]]] | str | None = None,
        report_values: bool | str = False,
        branch: str = "main",
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
