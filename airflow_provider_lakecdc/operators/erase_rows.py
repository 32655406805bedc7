"""The operator of the job that erases rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecdc.documents import without_connection
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecdc.submission import Submission


class EraseRowsOperator(LakecdcJobOperator):
    """Erases the rows of some keys from tables and what is kept beside them, and proves that no file holds a key.

    :param keys_table: ``namespace.name`` of a table that holds the keys, in columns called as the tables' key.
    :param keys_uri: of a file or folder of such keys: ``.parquet``, ``.csv`` with a header, or ``.json``.
    :param condition: SQL over columns that are no part of the key; it stands in the spec.
    :param history_tables: by table, its history table.
    :param further_tables: by table, others with the same key columns, such as exported changes and dimensions.
    :param quarantine_table: as for ``IngestOperator``.
    :param documents_uri: folder for spec and report, of which all are searched for the keys; default: ``[lakecdc]
        documents_uri``.
    :param drop_refs: tags and branches that may be dropped because they keep rows, as names or patterns.
    :param drop_consumers: consumers that may lose their place, as names or patterns.
    :param approved: by table, ``uri`` and ``sha256`` of the list of a dry run: nothing else is erased.
    :param dry_run: tell where keys are and who keeps them there, change nothing.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``nothing``.
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
        approved: Mapping[str, Mapping[str, str]] | str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] = (),
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
