"""What waiting for tables in the triggerer has in common."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, aget_catalog


class PollingTrigger(BaseTrigger):
    """Looks at a catalog's tables again and again; fires when a look finds something, or fails.

    Only names and limits are serialised; the connection is looked up in the triggerer on every poll, so that renewed
    credentials are used.

    :param catalog_conn_id: connection of type ``iceberg``.
    :param poll_interval: seconds between two looks.
    :param arguments: the subclass's own, all JSON.
    """

    #: entry of the event that holds what was found
    found_key: ClassVar[str]

    def __init__(self, catalog_conn_id: str, poll_interval: float, **arguments: Any) -> None:
        super().__init__()
        self.catalog_conn_id = catalog_conn_id
        self.poll_interval = poll_interval
        self._arguments = arguments

    @abstractmethod
    def look(self, catalog: CatalogConnection) -> Any | None:
        """Look once; called in a thread, because pyiceberg blocks.

        :return: what was found, as JSON; None if it is to be waited on.
        """

    async def look_in_thread(self, catalog: CatalogConnection) -> Any | None:
        """Look once beside the event loop; subclasses that need more of Airflow than the catalog ask for it here."""
        return await asyncio.to_thread(self.look, catalog)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Path of the class and its arguments, all JSON."""
        own = {"catalog_conn_id": self.catalog_conn_id, "poll_interval": self.poll_interval}
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments | own

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until something is found.

        An error ends the wait: the task fails with it and its retries decide whether to wait again.
        """
        try:
            yield TriggerEvent({"status": "reached", self.found_key: await self._wait()})
        except Exception as error:
            yield TriggerEvent({"status": "error", "message": f"{type(error).__name__}: {error}"})

    async def _wait(self) -> Any:
        while True:
            catalog = await aget_catalog(self.catalog_conn_id)
            found = await self.look_in_thread(catalog)
            if found is not None:
                return found
            await asyncio.sleep(self.poll_interval)
