"""Watermark of a table, read through pyiceberg."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import read_position


def read_watermark(catalog: CatalogConnection, table: str) -> datetime | None:
    """Return the source time (UTC) up to which the table has every change.

    Commits without a position (maintenance) are skipped, and a rollback moves the watermark back. A position in the
    table's properties, left by a run over an idle source, counts if it continues the newest position of a snapshot.

    :param table: ``namespace.name``.
    :return: None if the table does not exist or has no position yet.
    """
    position = read_position(catalog, table)
    return parse_moment(position.read_through) if position and position.read_through else None


def parse_moment(text: str) -> datetime:
    """Parse an ISO-8601 timestamp; without a zone it is UTC.

    :raises ValueError: it is invalid.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
