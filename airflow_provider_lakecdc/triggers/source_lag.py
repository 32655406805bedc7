"""The trigger of source lag."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment
from airflow_provider_lakecdc.hooks.source import asource_from_connection, source_from_connection
from airflow_provider_lakecdc.lake.source_lag import Lags, check_source_lag
from airflow_provider_lakecdc.lake.tables import Side
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class SourceLagTrigger(PollingTrigger):
    """Fire when tables lag behind their source, or no longer, or when either cannot be read.

    :param tables: ``namespace.name`` of each table.
    :param source: the source, without what its connection provides.
    :param source_conn_id: connection of the source.
    :param max_lag: bytes of the log for ``postgres``, messages for ``kafka``.
    :param until: ``above`` or ``below``, see :func:`airflow_provider_lakecdc.lake.source_lag.check_source_lag`.
    :param polling: ``catalog_conn_id`` and ``poll_interval``, see :class:`PollingTrigger`.
    """

    event_key: ClassVar[str] = "lag"

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

    def check(self, catalog: CatalogConnection) -> Lags | None:
        """Return the lags if the wait is over."""
        return self._check(catalog, source_from_connection(self.source, self.source_conn_id))

    async def check_in_thread(self, catalog: CatalogConnection) -> Lags | None:
        """Check once in a thread, after looking up the source's connection in the event loop."""
        source = await asource_from_connection(self.source, self.source_conn_id)
        return await asyncio.to_thread(self._check, catalog, source)

    def _check(self, catalog: CatalogConnection, source: tuple[Mapping[str, Any], SecretEnvironment]) -> Lags | None:
        return check_source_lag(catalog, source, self.tables, self.max_lag, self.until)
