"""The operator of the job that removes old rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class ExpirePartitionsOperator(LakecdcJobOperator, job="expire_partitions"):
    """Remove rows older than some age, whole files by metadata alone, and keep ingestion from inserting them again.

    :param time_column: date or timestamp column that decides which rows are old.
    :param max_age: seconds; rows from before the last midnight (UTC) of that age are removed. 0 means no age.
    :param older_than: ISO-8601 timestamp; older rows are removed. Replaces ``max_age``.
    :param max_partitions: maximum of partitions to remove per run, the oldest first: values of the partition field on
        the column, regardless of other fields, or days if there is none.
    :param allow_row_deletes: remove rows also from files that have younger rows too, by Spark's ``DELETE``, which reads
        these files, and rewrites them unless the table's ``write.delete.mode`` is ``merge-on-read``.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``ApprovableOptions``, ``RemovingOptions`` in
        ``lakecdc.contract``.
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
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
