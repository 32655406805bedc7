"""The base of all triggers that poll a catalog's tables."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, aget_catalog


class PollingTrigger(BaseTrigger):
    """Check a catalog's tables repeatedly; fire when a check returns a result or fails.

    Only names and limits are serialized; the connection is looked up before every check, so that renewed credentials
    take effect.

    :param catalog_conn_id: connection of type ``iceberg``.
    :param poll_interval: seconds between two checks.
    :param arguments: the subclass's arguments, all JSON.
    """

    #: key of the result in the event
    event_key: ClassVar[str]

    def __init__(self, catalog_conn_id: str, poll_interval: float, **arguments: Any) -> None:
        super().__init__()
        self.catalog_conn_id = catalog_conn_id
        self.poll_interval = poll_interval
        self._arguments = arguments

    @abstractmethod
    def check(self, catalog: CatalogConnection) -> Any | None:
        """Check once; runs in a thread, as pyiceberg blocks.

        :return: the result as JSON; None to keep waiting.
        """

    async def check_in_thread(self, catalog: CatalogConnection) -> Any | None:
        """Check once in a thread; subclasses that need further connections look them up here."""
        return await asyncio.to_thread(self.check, catalog)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments, all JSON."""
        own = {"catalog_conn_id": self.catalog_conn_id, "poll_interval": self.poll_interval}
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments | own

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is a result.

        An error ends the wait: the task fails with it, and its retries decide whether to wait again.
        """
        try:
            yield TriggerEvent({"status": "reached", self.event_key: await self._wait()})
        except Exception as error:
            yield TriggerEvent({"status": "error", "message": f"{type(error).__name__}: {error}"})

    async def _wait(self) -> Any:
        while True:
            catalog = await aget_catalog(self.catalog_conn_id)
            result = await self.check_in_thread(catalog)
            if result is not None:
                return result
            await asyncio.sleep(self.poll_interval)
