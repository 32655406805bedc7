"""The operator of the job that erases rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.submit.documents import without_connection
from airflow_provider_lakecdc.submit.submission import Submission
from lakecdc.contract.job_options import Outcome


class EraseRowsOperator(LakecdcJobOperator, job="erase_rows"):
    """Erase the rows of some keys from tables and their side tables, and prove that no file contains a key.

    :param keys_table: ``namespace.name`` of a table with the keys, in columns named as the table's key columns.
    :param keys_uri: URI of a file or folder with the keys: ``.parquet``, ``.csv`` with a header, or ``.json``.
    :param condition: SQL over columns outside of the key; it selects the keys of matching rows in the table or its
        history table.
    :param history_tables: history table by table.
    :param further_tables: by table, others with the same key columns, such as exported changes and dimensions.
    :param quarantine_table: as for ``ingest``.
    :param documents_uri: folder of the jobs' specs and reports, which are searched for the keys too.
    :param drop_refs: tags and branches that may be dropped because they keep rows, as names or patterns such as
        ``lakecdc-day-*``.
    :param drop_consumers: consumers that may lose their position, as names or patterns.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``ApprovableOptions``, ``JobOptions`` in
        ``lakecdc.contract``.
    """

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
        super().__init__(documents_uri=documents_uri, options=self.options_in(locals()), **kwargs)

    def prepare(self, context: Context | None = None) -> Submission:
        """Set the documents folder, which the job searches too, and call :meth:`LakecdcJobOperator.prepare`."""
        self.options["documents_uri"] = without_connection(self.documents_uri)
        return super().prepare(context)
