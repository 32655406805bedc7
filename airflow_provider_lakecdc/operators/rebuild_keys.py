"""The operator of the job that rebuilds rows of aggregated tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class RebuildKeysOperator(LakecdcJobOperator, job="rebuild_keys"):
    """Rebuild rows of aggregated tables from their history tables: chosen ones, all, or all by new rules.

    :param keys: by table, the keys of the rows to rebuild, such as ``[{"country": "DE"}]``; default: all rows.
    :param rules: by table, its columns from now on, as in ``merge.columns`` of its target; all rows are rebuilt.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        keys: Mapping[str, Sequence[Mapping[str, Any]]] | str | None = None,
        rules: Mapping[str, Mapping[str, str]] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
