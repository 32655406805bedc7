"""The operator of the job that rewrites manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class RewriteManifestsOperator(LakecdcJobOperator, job="rewrite_manifests"):
    """Rewrite the manifests of tables that have many small ones.

    Options: ``lakecdc.contract.rewriting.RewriteManifestsOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        min_manifests: int | str = 8,
        min_average_bytes: int | str = 4_194_304,
        keep_failed_files: bool | str = False,
        side_tables: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
