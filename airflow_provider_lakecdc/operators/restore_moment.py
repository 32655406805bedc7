"""The operator of the job that restores tables as of a past moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class RestoreMomentOperator(LakecdcJobOperator, job="restore_moment"):
    """Restore tables as of one moment of their source, each on a branch or in another table.

    Options: ``lakecdc.contract.past.RestoreMomentOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        action: Literal["restore", "drop"] | str = "restore",
        moment: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        branch: str | None = None,
        keep_for: float | str = 2_592_000.0,
        into: Mapping[str, str] | str | None = None,
        quarantine_table: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
