"""The sensor of unread snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.lake.consumers import register_consumer, unread
from airflow_provider_lakecdc.sensors.polling import PollingSensor
from lakecdc.metadata.consumers import LIMIT


class SnapshotSensor(PollingSensor):
    """Wait until a table has snapshots that a consumer has not read; registers the consumer if necessary.

    The return value is ``{"read": …, "head": …}``: the ids of the last snapshot read and of the newest one, as text. It
    does not advance the consumer; use :class:`airflow_provider_lakecdc.operators.consumer.ConsumerOperator` after the
    work is done.

    :param table: ``namespace.name``. (templated)
    :param consumer: its name. (templated)
    :param limit: seconds without progress, while there are changes to read, after which its snapshots may expire.
    """

    goal: ClassVar[str] = "snapshots of {table} that {consumer} has not read"
    template_fields: Sequence[str] = (*PollingSensor.template_fields, "table", "consumer")

    def __init__(self, *, table: str, consumer: str, limit: float = LIMIT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.consumer = consumer
        self.limit = limit

    @staticmethod
    def check(catalog: CatalogConnection, *, table: str, consumer: str) -> dict[str, str] | None:
        """Return the ids of the last snapshot read and of the head, as text for JSON parsers without 64-bit numbers."""
        snapshots = unread(catalog, table, consumer)
        return None if snapshots is None else {"read": str(snapshots[0]), "head": str(snapshots[1])}

    def check_arguments(self) -> dict[str, Any]:
        """Return table and consumer."""
        return {"table": self.table, "consumer": self.consumer}

    def execute(self, context: Context) -> Any:
        """Register the consumer, then wait."""
        register_consumer(get_catalog(self.catalog_conn_id), self.table, self.consumer, limit=self.limit)
        return super().execute(context)
