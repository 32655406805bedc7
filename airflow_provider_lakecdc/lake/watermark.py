"""Up to which moment of its source a table has been fed, read through pyiceberg."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.tables import read_position

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


def read_watermark(catalog: CatalogConnection, table: str) -> datetime | None:
    """The moment at the source up to which every change is in the table, UTC.

    Commits that carry no position (maintenance) are passed over, a rollback rewinds it, and the position that a run
    over a quiet source has left in the table's properties counts as long as it continues the nearest carrier.

    :param table: ``namespace.name``.
    :return: None if there is no such table, or no position in it yet.
    """
    position = read_position(catalog, table)
    return parse_moment(position.read_through) if position and position.read_through else None


def parse_moment(text: str) -> datetime:
    """An ISO-8601 moment; one without a zone is UTC.

    :raises ValueError: if it is none.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
