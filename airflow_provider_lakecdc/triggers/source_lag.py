"""The trigger of source lag."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.hooks.connections import SecretEnvironment
from airflow_provider_lakecdc.hooks.source import asource_from_connection, source_from_connection
from airflow_provider_lakecdc.lake.tables import read_tables, standing_position
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.triggers.polling import PollingTrigger, Side, Until, check_limit

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: bytes or messages by table; None for a table that was never fed
Lags = dict[str, int | None]


@dataclass(kw_only=True, eq=False, repr=False)
class SourceLagTrigger(PollingTrigger):
    """Fire when tables lag behind their source's log by more than a limit, or none does, or either cannot be read.

    :param tables: ``namespace.name`` of each table; one that was never fed or does not exist has an infinite lag.
    :param source: the source, without what its connection provides.
    :param source_conn_id: connection of the source.
    :param max_lag: bytes of the log for ``postgres``, messages for ``kafka``.
    :param until: ``above``: some table has a larger lag; ``below``: no table has.
    """

    event_key: ClassVar[str] = "lag"
    goal: ClassVar[str] = "lags {until} {max_lag}"

    tables: Sequence[str]
    source: Mapping[str, Any]
    source_conn_id: str
    max_lag: int
    until: Side = "above"

    def check(self, catalog: CatalogConnection) -> Lags | None:
        """Return the lags if the wait is over."""
        return self._check(catalog, source_from_connection(self.source, self.source_conn_id))

    async def check_in_thread(self, catalog: CatalogConnection) -> Lags | None:
        """Check once in a thread, after looking up the source's connection in the event loop."""
        source = await asource_from_connection(self.source, self.source_conn_id)
        return await asyncio.to_thread(self._check, catalog, source)

    def _check(self, catalog: CatalogConnection, source: tuple[Mapping[str, Any], SecretEnvironment]) -> Lags | None:
        # the source is queried for all tables at once
        positions = read_tables(catalog, self.tables, _position, lambda _, error: error)
        lags = _query(*source, {table: position for table, position in positions.items() if isinstance(position, str)})

        def lag_of(table: str) -> float:
            if isinstance(failed := positions[table], Exception):
                raise failed
            return lags.get(table, math.inf)

        wanted: Until = "some" if self.until == "above" else "none"
        behind = check_limit(self.tables, lag_of, lambda lag: lag > self.max_lag, wanted, "Source lag")
        return None if behind is None else {table: lags.get(table) for table in behind}


def _position(_: str, table: Table | None) -> str | None | Exception:
    """Return a table's encoded position in its source."""
    position = standing_position(table) if table is not None else None
    return position.encode() if position else None


def _query(source: Mapping[str, Any], secrets: SecretEnvironment, positions: Mapping[str, str]) -> dict[str, int]:
    """Query the source in a process that may import its client (``lakecdc.probes.source_lag``)."""
    if not positions:
        return {}
    question = json.dumps({"source": source, "positions": positions})
    lags: dict[str, int] = json.loads(launcher.ask_source("lakecdc.probes.source_lag", question, secrets.values))
    return lags
