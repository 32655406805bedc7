"""The trigger of jobs on platforms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.submit.platforms import platform_at
from airflow_provider_lakecdc.submit.submitter import RunStatus, Submitter


class RunEndTrigger(BaseTrigger):
    """Wait until a run on a platform ends.

    :param conn_id: the platform's connection.
    """

    def __init__(self, *, conn_id: str, run_id: str) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.run_id = run_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"conn_id": self.conn_id, "run_id": self.run_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the run ends; a platform that does not answer ends the wait, and the next try goes on with it."""
        try:
            while (status := await asyncio.to_thread(self._poll)).state == "running":
                await asyncio.sleep(Submitter.poll_seconds)
            yield TriggerEvent({"state": status.state, "reason": status.reason})
        except Exception as error:
            yield TriggerEvent({"state": "unknown", "reason": f"{type(error).__name__}: {error}"})

    async def on_kill(self) -> None:
        """Stop the run, because a user has ended the task."""
        await asyncio.to_thread(lambda: platform_at(self.conn_id).stop(self.run_id))

    def _poll(self) -> RunStatus:
        # a platform of its own each time, so that renewed credentials take effect
        return platform_at(self.conn_id).poll(self.run_id)
