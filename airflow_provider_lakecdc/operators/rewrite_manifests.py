"""The operator of the job that rewrites manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class RewriteManifestsOperator(LakecdcJobOperator, job="rewrite_manifests"):
    """Rewrite the manifests of tables that have many small ones.

    :param min_manifests: number of manifests from which they are rewritten.
    :param min_average_bytes: average size of manifests above which they are not rewritten.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``PublishingOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        min_manifests: int | str = 8,
        min_average_bytes: int | str = 4_194_304,
        keep_failed_files: bool | str = False,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
