"""The operator of the job that removes old rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class ExpirePartitionsOperator(LakecdcJobOperator, job="expire_partitions"):
    """Remove rows older than some age, whole files by metadata alone, and keep ingestion from inserting them again.

    Options: ``lakecdc.contract.expiring.ExpirePartitionsOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        time_column: str | None = None,
        max_age: float | str = 0.0,
        older_than: str | None = None,
        max_partitions: int | str = 100,
        allow_row_deletes: bool | str = False,
        approved: Mapping[str, Mapping[str, Any]] | str | None = None,
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
