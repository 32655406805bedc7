"""Waiting for a table's watermark in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.hooks.catalog import aget_catalog
from airflow_provider_lakecdc.watermark import parse_moment, read_watermark


class IcebergWatermarkTrigger(BaseTrigger):
    """Fires when a table's ingested source time has reached a moment, or when it cannot be read.

    Only names are serialised; the connection is looked up in the triggerer on every poll, so that renewed credentials
    are used.

    :param table: ``namespace.name``.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param moment: ISO-8601.
    :param poll_interval: seconds between two looks at the table.
    """

    def __init__(self, *, table: str, catalog_conn_id: str, moment: str, poll_interval: float = 60.0) -> None:
        super().__init__()
        self.table = table
        self.catalog_conn_id = catalog_conn_id
        self.moment = moment
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Path of the class and its arguments, all JSON."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table": self.table,
                "catalog_conn_id": self.catalog_conn_id,
                "moment": self.moment,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the moment is reached.

        An error ends the wait: the task fails with it and its retries decide whether to wait again.
        """
        try:
            yield TriggerEvent({"status": "reached", "read_through": await self._wait()})
        except Exception as error:
            yield TriggerEvent({"status": "error", "message": f"{type(error).__name__}: {error}"})

    async def _wait(self) -> str:
        wanted = parse_moment(self.moment)
        while True:
            catalog = await aget_catalog(self.catalog_conn_id)
            # pyiceberg blocks, and the event loop is everybody's
            found = await asyncio.to_thread(read_watermark, catalog, self.table)
            if found is not None and found >= wanted:
                return found.isoformat()
            await asyncio.sleep(self.poll_interval)
