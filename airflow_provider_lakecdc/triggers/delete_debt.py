"""Waiting for tables' delete debt in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.delete_debt import Debts, Side, look
from airflow_provider_lakecdc.hooks.catalog import aget_catalog
from airflow_provider_lakecdc.tables import MAIN
from lakecdc.metadata.debt import DebtLimits


class DeleteDebtTrigger(BaseTrigger):
    """Fires when tables' delete debt is on a side of its limits, or when it cannot be read.

    Only names and limits are serialised; the connection is looked up in the triggerer on every poll, so that renewed
    credentials are used.

    :param tables: ``namespace.name`` of each table.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param limits: fields of :class:`lakecdc.metadata.debt.DebtLimits`.
    :param until: ``above`` or ``below``, see :func:`airflow_provider_lakecdc.delete_debt.satisfied`.
    :param branch: branch to look at.
    :param poll_interval: seconds between two looks.
    """

    def __init__(
        self,
        *,
        tables: Sequence[str],
        catalog_conn_id: str,
        limits: Mapping[str, int | None],
        until: Side = "above",
        branch: str = MAIN,
        poll_interval: float = 60.0,
    ) -> None:
        super().__init__()
        self.tables = list(tables)
        self.catalog_conn_id = catalog_conn_id
        self.limits = dict(limits)
        self.until = until
        self.branch = branch
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Path of the class and its arguments, all JSON."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "tables": self.tables,
                "catalog_conn_id": self.catalog_conn_id,
                "limits": self.limits,
                "until": self.until,
                "branch": self.branch,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the debt is where it is waited for.

        An error ends the wait: the task fails with it and its retries decide whether to wait again.
        """
        try:
            yield TriggerEvent({"status": "reached", "debt": await self._wait()})
        except Exception as error:
            yield TriggerEvent({"status": "error", "message": f"{type(error).__name__}: {error}"})

    async def _wait(self) -> Debts:
        limits = DebtLimits(**self.limits)
        while True:
            catalog = await aget_catalog(self.catalog_conn_id)
            # pyiceberg blocks, and the event loop is everybody's
            found = await asyncio.to_thread(look, catalog, self.tables, self.branch, limits, self.until)
            if found is not None:
                return found
            await asyncio.sleep(self.poll_interval)
