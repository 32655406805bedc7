"""The operator of the job that erases rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.submit.documents import without_connection
from airflow_provider_lakecdc.submit.submission import Submission


class EraseRowsOperator(LakecdcJobOperator, job="erase_rows"):
    """Erase the rows of some keys from tables and their side tables, and prove that no file contains a key.

    Options: ``lakecdc.contract.expiring.EraseRowsOptions``. Other arguments: :class:`LakecdcJobOperator`.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(documents_uri=documents_uri, options=self.options_in(locals()), **kwargs)

    def prepare(self, context: Context | None = None) -> Submission:
        """Set the documents folder, which the job searches too, and call :meth:`LakecdcJobOperator.prepare`."""
        self.options["documents_uri"] = without_connection(self.documents_uri)
        return super().prepare(context)
