"""The operator of the job that exports changes of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class ExportChangesOperator(LakecdcJobOperator, job="export_changes"):
    """Export the changes of tables since the last export, to append-only tables or to folders of files.

    Options: ``lakecdc.contract.past.ExportChangesOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        destinations: Mapping[str, Mapping[str, Any]] | str | None = None,
        since: str | None = None,
        until: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        consumer: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
