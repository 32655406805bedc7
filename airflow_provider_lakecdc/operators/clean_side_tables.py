"""The operator of the job that cleans side tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class CleanSideTablesOperator(LakecdcJobOperator, job="clean_side_tables"):
    """Remove obsolete rows from the side tables of targets, and report the remaining ones.

    :param quarantine_table: as for ``ingest``.
    :param dismiss: quarantined messages to drop without a replay; only for tables that the run cleans.
    :param forget_tables: former targets, whose rows are removed from the side tables that they shared with others.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``RemovingOptions`` in ``lakecdc.contract``.
    """

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
        super().__init__(options=self.options_in(locals()), **kwargs)
