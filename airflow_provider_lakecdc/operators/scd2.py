"""The operator of the job that maintains slowly changing dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class Scd2Operator(LakecdcJobOperator, job="scd2"):
    """Maintain tables with the versions of other tables' rows (slowly changing dimensions, type 2).

    :param history_tables: history table by table.
    :param dimensions: by table, the table of its versions; it is created if it does not exist.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        history_tables: Mapping[str, str] | str | None = None,
        dimensions: Mapping[str, str] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
