"""The operator that removes old specs and reports of jobs, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit.outbox import undelivered
from airflow_provider_lakecdc.documents.cleanup import YOUNGEST_DOCUMENT, remove_documents
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.submission import check_conf, is_true

if TYPE_CHECKING:
    from airflow.sdk import Context

_SHOWN = 10


class RemoveDocumentsOperator(BaseOperator):
    """Removes specs and reports of tries that were over long ago, of all DAGs that keep theirs in the same folder.

    Rows of the audit that could not be delivered since then stay, and are warned of.

    :param max_age: seconds since a try wrote its last document; not less than a day. (templated)
    :param documents_uri: folder of the documents; default: ``[lakecdc] documents_uri``. (templated)
    :param is_dry: count them, remove none. (templated)
    :param strict_run_conf: refuse a DAG run whose ``conf`` has keys that are no params of the DAG.
    :param kwargs: arguments of ``BaseOperator``.
    """

    template_fields: Sequence[str] = ("max_age", "documents_uri", "is_dry")
    ui_color = "#d9ecf2"

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
        """Remove them.

        :return: ``documents`` and ``bytes`` that have gone, or would in a dry run, documents ``kept``, and those that
            are ``undelivered`` for that long.
        :raises JobBadInputError: they are to go within a day, or the run's ``conf`` is refused.
        """
        if self.strict_run_conf:
            check_conf(context["dag_run"].conf, list(context["dag"].params))
        age = float(self.max_age)
        if not age >= YOUNGEST_DOCUMENT:
            raise JobBadInputError(
                f"max_age of the documents is {age:g}, less than {YOUNGEST_DOCUMENT:.0f} seconds, a day.",
                hint="Jobs that run need theirs.",
            )
        dry_run = is_true(self.is_dry)
        before = datetime.now(UTC) - timedelta(seconds=age)
        found, waiting = (
            remove_documents(self.documents_uri, before, dry_run=dry_run),
            undelivered(self.documents_uri, before),
        )
        done = "would go" if dry_run else "have gone"
        self.log.info("%d documents (%d bytes) %s, %d stay", found.documents, found.bytes, done, found.kept)
        if waiting:
            self.log.warning(
                "%d documents with rows of the audit have waited as long, and stay. Once their catalog takes rows, the "
                "next job of its connection delivers them; where the catalog is no more, remove them: %s",
                len(waiting),
                ", ".join(waiting[:_SHOWN]),
            )
        return {**asdict(found), "undelivered": len(waiting)}
