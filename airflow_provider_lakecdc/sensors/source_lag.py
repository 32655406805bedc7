"""The sensor of source lag."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.hooks.source import source_from_connection
from airflow_provider_lakecdc.lake.tables import position_in, read_tables
from airflow_provider_lakecdc.sensors.polling import LimitSensor, Side, check_limit
from airflow_provider_lakecdc.submit import launcher

if TYPE_CHECKING:
    from pyiceberg.table import Table


class SourceLagSensor(LimitSensor):
    """Wait until tables lag behind their source's log by more than a limit, or none does.

    ``until="above"`` waits for a table with a larger lag, to ingest when needed instead of by the clock.
    ``until="below"`` waits until no table has one, before readers that need recent data. A table that was never fed
    from a source of this type has an infinite lag. Each check reads one metadata file per table and queries the end of
    the source's log. A position from which ingestion cannot continue, such as one of another cluster, fails the task.

    Postgres' log grows with all databases of the server, and a little by itself: limits below some megabytes are passed
    without a change to the tables.

    :param tables: ``namespace.name`` of each table. (templated)
    :param source: the ``source`` of the job that feeds them, of type ``postgres`` or ``kafka``. (templated)
    :param source_conn_id: connection with the source's address and login. (templated)
    :param max_lag: bytes of the log for ``postgres``, messages for ``kafka``. (templated)
    :param until: ``above`` or ``below``. (templated)
    """

    goal: ClassVar[str] = "lags {until} {max_lag}"
    template_fields: Sequence[str] = (*LimitSensor.template_fields, "source", "source_conn_id", "max_lag")
    template_fields_renderers: ClassVar[dict[str, str]] = {"source": "json"}

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        source: Mapping[str, Any],
        source_conn_id: str,
        max_lag: int | str,
        until: Side | str = "above",
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, until=until, **kwargs)
        self.source = source
        self.source_conn_id = source_conn_id
        self.max_lag = max_lag

    @staticmethod
    def check(
        catalog: CatalogConnection,
        *,
        tables: Sequence[str],
        source: Mapping[str, Any],
        source_conn_id: str,
        max_lag: int,
        until: Side = "above",
    ) -> dict[str, int | None] | None:
        """Return the lags by table if the wait is over; None for a table that was never fed."""
        # the source is queried for all tables at once
        read = partial(_position, source.get("type", "postgres"))
        positions = read_tables(catalog, tables, read, lambda _, error: error)
        known = {table: position for table, position in positions.items() if isinstance(position, str)}
        lags = _query(source, source_conn_id, known)
        measured = {
            table: position if isinstance(position, Exception) else lags.get(table, math.inf)
            for table, position in positions.items()
        }
        behind = check_limit(measured, lambda lag: lag > max_lag, "Source lag", some=until == "above")
        return None if behind is None else {table: lags.get(table) for table in behind}

    def check_arguments(self) -> dict[str, Any]:
        """Return tables, source and limit."""
        arguments = {**super().check_arguments(), "source": self.source, "source_conn_id": self.source_conn_id}
        try:
            limit = int(self.max_lag)
        except ValueError as error:
            raise AirflowFailException(f"max_lag {self.max_lag!r} is not a whole number.") from error
        if limit < 0:
            raise AirflowFailException(f"max_lag must not be negative, got {limit}.")
        return {**arguments, "max_lag": limit}


def _position(source: str, _: str, table: Table | None) -> str | None | Exception:
    """Return a table's encoded position in its source, of a type."""
    position = position_in(table, source) if table is not None else None
    return position.encode() if position else None


def _query(given: Mapping[str, Any], conn_id: str, positions: Mapping[str, str]) -> dict[str, int]:
    """Query the source in a process that may import its client (``lakecdc.probes.source_lag``)."""
    source, secrets = source_from_connection(given, conn_id)
    if not positions:
        return {}
    question = json.dumps({"source": source, "positions": positions})
    lags: dict[str, int] = json.loads(launcher.ask_source("lakecdc.probes.source_lag", question, secrets.values))
    return lags
