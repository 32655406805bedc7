"""The operator of the job that removes old rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class ExpirePartitionsOperator(LakecdcJobOperator):
    """Removes rows older than some age, whole files by metadata alone, and keeps ingestion from taking them in again.

    :param time_column: column of dates or moments whose older rows are removed.
    :param max_age: seconds; rows from before the last midnight (UTC) that is as long ago are removed. 0 is no age.
    :param older_than: rows from before this ISO-8601 moment are removed, instead of ``max_age``.
    :param max_partitions: partitions that one run removes at most, the oldest first: values of the partition field on
        the column, whatever other fields there are beside it, or days if there is none.
    :param allow_row_deletes: remove rows also from files that hold rows which stay, by Spark's ``DELETE``, which reads
        these files, and rewrites them unless the table's ``write.delete.mode`` is ``merge-on-read``.
    :param approved: by table, ``uri`` and ``sha256`` of the list of a dry run, as its metric ``findings`` has them:
        only what the job finds again and the list names is removed. A changed list is refused, and so is a table
        without one. Default: no approval is needed.
    :param protection: by table, what the configuration says of removals from it. The table's own properties
        ``lakecdc.policy.…`` hold as well, whether it is given or not.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "expire_partitions"

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
        options = {
            "time_column": time_column,
            "max_age": max_age,
            "older_than": older_than,
            "max_partitions": max_partitions,
            "allow_row_deletes": allow_row_deletes,
            "approved": approved,
            "protection": protection or {},
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
