"""Lag of tables behind their source's log, compared with a limit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.limits import check_limit
from airflow_provider_lakecdc.lake.tables import Side, read_position
from airflow_provider_lakecdc.submit import launcher

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment

#: bytes or messages by table; None for a table that was never fed
Lags = dict[str, int | None]


def check_source_lag(
    catalog: CatalogConnection,
    source: tuple[Mapping[str, Any], SecretEnvironment],
    tables: Sequence[str],
    limit: int,
    until: Side,
) -> Lags | None:
    """Check all tables and their source once, see :func:`airflow_provider_lakecdc.lake.limits.check_limit`.

    :param source: the source with its connection's address, and the secrets that it refers to.
    :param tables: ``namespace.name`` of each; a table that was never fed or does not exist has an infinite lag.
    :param limit: bytes of the log for ``postgres``, messages for ``kafka``.
    :param until: ``above``: some table has a larger lag; ``below``: no table has.
    :raises JobBadInputError: a table is fed from another source, or its source has no log.
    :raises LakecdcJobError: the source cannot be queried, or the result depends on tables that cannot be read.
    """
    positions = {table: _position(catalog, table) for table in tables}
    lags = _query(*source, {table: position for table, position in positions.items() if isinstance(position, str)})

    def lag_of(table: str) -> float:
        if isinstance(failed := positions[table], Exception):
            raise failed
        return lags.get(table, math.inf)

    behind = check_limit(tables, lag_of, lambda lag: lag > limit, "some" if until == "above" else "none", "Source lag")
    return None if behind is None else {table: lags.get(table) for table in behind}


def _position(catalog: CatalogConnection, table: str) -> str | None | Exception:
    """Return a table's encoded position in its source, or the error; the source is queried for all tables at once."""
    try:
        position = read_position(catalog, table)
    except Exception as error:
        return error
    return position.encode() if position else None


def _query(source: Mapping[str, Any], secrets: SecretEnvironment, positions: Mapping[str, str]) -> dict[str, int]:
    """Query the source in a process that may import its client (``lakecdc.probes.source_lag``)."""
    if not positions:
        return {}
    question = json.dumps({"source": source, "positions": positions})
    lags: dict[str, int] = json.loads(launcher.ask_source("lakecdc.probes.source_lag", question, secrets.values))
    return lags
