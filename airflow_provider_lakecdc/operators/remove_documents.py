"""The operator that removes old specs and reports of jobs, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit.outbox import undelivered
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.documents import YOUNGEST_DOCUMENT, remove_documents
from airflow_provider_lakecdc.submit.submission import check_conf, is_true

_SHOWN = 10


class RemoveDocumentsOperator(BaseOperator):
    """Remove old specs and reports of all DAGs that share a documents folder.

    Undelivered audit rows of that age stay, with a warning.

    :param max_age: seconds since the last document of a try; at least a day. (templated)
    :param documents_uri: folder of the documents; default: ``[lakecdc] documents_uri``. (templated)
    :param is_dry: only count. (templated)
    :param strict_run_conf: refuse a DAG run whose ``conf`` has keys that are not params of the DAG.
    """

    template_fields: Sequence[str] = ("max_age", "documents_uri", "is_dry")

    def __init__(
        self,
        *,
        max_age: float | str = 90 * 24 * 3600.0,
        documents_uri: str | None = None,
        is_dry: bool | str = False,
        strict_run_conf: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_age = max_age
        self.documents_uri = documents_uri or settings.documents_uri()
        self.is_dry = is_dry
        self.strict_run_conf = strict_run_conf

    def execute(self, context: Context) -> dict[str, int]:
        """Remove the documents.

        :return: removed ``documents`` and ``bytes`` (in a dry run, to be removed), documents ``kept``, and
            ``undelivered`` audit documents of that age.
        :raises JobBadInputError: ``max_age`` is less than a day, or the run's ``conf`` is refused.
        """
        if self.strict_run_conf:
            check_conf(context)
        age = float(self.max_age)
        if not age >= YOUNGEST_DOCUMENT:
            raise JobBadInputError(
                f"max_age of documents is {age:g} seconds, less than the minimum of {YOUNGEST_DOCUMENT:.0f}, a day.",
                hint="Use a longer max_age: running jobs need their documents.",
            )
        dry_run = is_true(self.is_dry)
        before = datetime.now(UTC) - timedelta(seconds=age)
        removal, waiting = (
            remove_documents(self.documents_uri, before, dry_run=dry_run),
            undelivered(self.documents_uri, before),
        )
        verb = "Would remove" if dry_run else "Removed"
        self.log.info("%s %d documents (%d bytes), kept %d", verb, removal.documents, removal.bytes, removal.retained)
        if waiting:
            self.log.warning(
                "%d documents with audit rows of that age are undelivered. Their connection's next job delivers them "
                "once the catalog accepts them; if the catalog no longer exists, remove them: %s",
                len(waiting),
                ", ".join(waiting[:_SHOWN]),
            )
        return {
            "documents": removal.documents,
            "bytes": removal.bytes,
            "kept": removal.retained,
            "undelivered": len(waiting),
        }
