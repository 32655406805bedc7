"""Waiting for tables and their source in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment
from airflow_provider_lakecdc.hooks.source import asource_from_connection, source_from_connection
from airflow_provider_lakecdc.lake.source_lag import Lags, look
from airflow_provider_lakecdc.lake.tables import Side
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class SourceLagTrigger(PollingTrigger):
    """Fires when tables are behind their source, or no more, or when one of both cannot be asked.

    :param tables: ``namespace.name`` of each table.
    :param source: what feeds them, without what its connection gives.
    :param source_conn_id: connection of the source.
    :param max_lag: bytes of the log of ``postgres``, messages of ``kafka``.
    :param until: ``above`` or ``below``, see :func:`airflow_provider_lakecdc.lake.source_lag.look`.
    :param polling: ``catalog_conn_id`` and ``poll_interval``, see :class:`PollingTrigger`.
    """

    found_key: ClassVar[str] = "lag"

    def __init__(
        self,
        *,
        tables: Sequence[str],
        source: Mapping[str, Any],
        source_conn_id: str,
        max_lag: int,
        until: Side = "above",
        **polling: Any,
    ) -> None:
        self.tables, self.source, self.source_conn_id = list(tables), dict(source), source_conn_id
        self.max_lag, self.until = max_lag, until
        own: dict[str, Any] = {
            "source": self.source,
            "source_conn_id": source_conn_id,
            "max_lag": max_lag,
            "until": until,
        }
        super().__init__(**polling, tables=self.tables, **own)

    def look(self, catalog: CatalogConnection) -> Lags | None:
        """What the tables have yet to take in."""
        return self._look(catalog, source_from_connection(self.source, self.source_conn_id))

    async def look_in_thread(self, catalog: CatalogConnection) -> Lags | None:
        """Look once beside the event loop, which alone may ask for the source's connection."""
        source = await asource_from_connection(self.source, self.source_conn_id)
        return await asyncio.to_thread(self._look, catalog, source)

    def _look(self, catalog: CatalogConnection, source: tuple[Mapping[str, Any], SecretEnvironment]) -> Lags | None:
        return look(catalog, source, self.tables, self.max_lag, self.until)
