"""The trigger of all deferrable sensors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pkgutil import resolve_name
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.hooks.catalog import get_catalog


class PollingTrigger(BaseTrigger):
    """Call the check of a sensor repeatedly; fire when it returns a result or fails.

    The connection is looked up before every check, so that renewed credentials take effect.

    :param sensor: the class that defines the check, ``module:name``, see
        :class:`airflow_provider_lakecdc.sensors.polling.PollingSensor`.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param poll_interval: seconds between two checks.
    :param arguments: further arguments of the check, as JSON.
    """

    def __init__(self, *, sensor: str, catalog_conn_id: str, poll_interval: float = 60.0, **arguments: Any) -> None:
        super().__init__()
        self.sensor = sensor
        self.catalog_conn_id = catalog_conn_id
        self.poll_interval = poll_interval
        self.arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments, all JSON."""
        own = {"sensor": self.sensor, "catalog_conn_id": self.catalog_conn_id, "poll_interval": self.poll_interval}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**own, **self.arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is a result.

        An error ends the wait: the task fails with it, and its retries decide whether to wait again.
        """
        try:
            sensor = resolve_name(self.sensor)
            # in a thread, as pyiceberg blocks
            while (result := await asyncio.to_thread(self._check, sensor)) is None:
                await asyncio.sleep(self.poll_interval)
            yield TriggerEvent({"status": "reached", "result": result})
        except Exception as error:
            yield TriggerEvent({"status": "error", "message": f"{type(error).__name__}: {error}"})

    def _check(self, sensor: Any) -> Any | None:
        return sensor.check(get_catalog(self.catalog_conn_id), **self.arguments)
