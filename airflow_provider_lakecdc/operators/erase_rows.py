"""The operator of the job that erases rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecdc.documents.store import without_connection
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecdc.submit.submission import Submission


class EraseRowsOperator(LakecdcJobOperator):
    """Erases the rows of some keys from tables and what is kept beside them, and proves that no file holds a key.

    :param keys_table: ``namespace.name`` of a table that holds the keys, in columns called as the table's key.
    :param keys_uri: of a file or folder of such keys: ``.parquet``, ``.csv`` with a header, or ``.json``.
    :param condition: SQL over columns that are no part of the key: the keys of rows that meet it, in the table or its
        history table.
    :param history_tables: by table, its history table.
    :param further_tables: by table, others with the same key columns, such as exported changes and dimensions.
    :param quarantine_table: as for ``ingest``.
    :param documents_uri: folder of the specs and reports of jobs, which are searched for the keys as well.
    :param drop_refs: tags and branches that may be dropped because they keep rows, as names or patterns such as
        ``lakecdc-day-*``.
    :param drop_consumers: consumers that may lose their place, as names or patterns.
    :param approved: by table, ``uri`` and ``sha256`` of the list of a dry run, as its metric ``findings`` has them:
        only what the job finds again and the list names is removed. A changed list is refused, and so is a table
        without one. Default: no approval is needed.
    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "erase_rows"

    def __init__(
        self,
        *,
        keys_table: str | None = None,
        keys_uri: str | None = None,
        condition: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        further_tables: Mapping[str, Sequence[str]] | str | None = None,
        quarantine_table: str | None = None,
        documents_uri: str | None = None,
        drop_refs: Sequence[str] | str = (),
        drop_consumers: Sequence[str] | str = (),
        approved: Mapping[str, Mapping[str, Any]] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "keys_table": keys_table,
            "keys_uri": keys_uri,
            "condition": condition,
            "history_tables": history_tables or {},
            "further_tables": further_tables or {},
            "quarantine_table": quarantine_table,
            "documents_uri": documents_uri,
            "drop_refs": drop_refs,
            "drop_consumers": drop_consumers,
            "approved": approved,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, documents_uri=documents_uri, **kwargs)

    def prepare(self, context: Context | None = None) -> Submission:
        """See :meth:`LakecdcJobOperator.prepare`; the job searches the folder that it reports to."""
        self.options["documents_uri"] = without_connection(self.documents_uri)
        return super().prepare(context)
