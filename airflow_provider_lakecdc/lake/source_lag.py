"""How much of their source's log tables have yet to take in, and which side of a limit that is on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.limits import look_at
from airflow_provider_lakecdc.lake.tables import Side, read_position
from airflow_provider_lakecdc.submit import launcher

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment

#: bytes or messages by table; None for one that has never been fed
Lags = dict[str, int | None]


def look(
    catalog: CatalogConnection,
    source: tuple[Mapping[str, Any], SecretEnvironment],
    tables: Sequence[str],
    limit: int,
    until: Side,
) -> Lags | None:
    """Look at all tables and at their source once; see :func:`airflow_provider_lakecdc.lake.limits.look_at`.

    :param source: completed by its connection, with the secrets that it refers to.
    :param tables: ``namespace.name`` of each; one that has never been fed, or does not exist, has everything to take
        in.
    :param limit: bytes of the log of ``postgres``, messages of ``kafka``.
    :param until: ``above``: some table has more to take in; ``below``: no table has.
    :raises JobBadInputError: a table is fed from elsewhere, or what it is fed from has no log.
    :raises LakecdcJobError: the source cannot be asked, or it is left to tables that cannot be read.
    """
    positions = {table: _position(catalog, table) for table in tables}
    lags = _ask(*source, {table: found for table, found in positions.items() if isinstance(found, str)})

    def lag_of(table: str) -> float:
        if isinstance(failed := positions[table], Exception):
            raise failed
        return lags.get(table, math.inf)

    found = look_at(tables, lag_of, lambda lag: lag > limit, "some" if until == "above" else "none", "Source lag")
    return None if found is None else {table: lags.get(table) for table in found}


def _position(catalog: CatalogConnection, table: str) -> str | None | Exception:
    """Where a table stands, as summaries hold it, or why it cannot be read; the source is asked for all at once."""
    try:
        position = read_position(catalog, table)
    except Exception as error:
        return error
    return position.encode() if position else None


def _ask(source: Mapping[str, Any], secrets: SecretEnvironment, positions: Mapping[str, str]) -> dict[str, int]:
    """Ask a program that may import the source's client (``lakecdc.probes.source_lag``)."""
    if not positions:
        return {}
    question = json.dumps({"source": source, "positions": positions})
    found: dict[str, int] = json.loads(launcher.ask_source("lakecdc.probes.source_lag", question, secrets.values))
    return found
