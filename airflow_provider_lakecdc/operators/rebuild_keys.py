"""The operator of the job that rebuilds rows of aggregated tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class RebuildKeysOperator(LakecdcJobOperator, job="rebuild_keys"):
    """Rebuild rows of aggregated tables from their history tables: chosen ones, all, or all by new rules.

    Options: ``lakecdc.contract.past.RebuildKeysOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        keys: Mapping[str, Sequence[Mapping[str, Any]]] | str | None = None,
        rules: Mapping[str, Mapping[str, str]] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
