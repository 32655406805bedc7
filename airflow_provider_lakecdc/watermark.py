"""Up to which moment of its source a table has been fed, read through pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.metadata.positions import current_position, nearest_carrier

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

_BRANCH = "main"


def read_watermark(catalog: CatalogConnection, table: str) -> datetime | None:
    """The moment at the source up to which every change is in the table, UTC.

    Commits that carry no position (maintenance) are passed over, a rollback rewinds it, and the position that a run
    over a quiet source has left in the table's properties counts as long as it continues the nearest carrier.

    :param table: ``namespace.name``.
    :return: None if there is no such table, or no position in it yet.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    with closing(catalog.load()) as opened:
        try:
            loaded = opened.load_table(table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
    position = current_position(nearest_carrier(ancestors(loaded)), loaded.properties)
    return parse_moment(position.read_through) if position and position.read_through else None


def ancestors(table: Table) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Snapshots of the main branch with their summaries, from the head towards the root."""
    ref = table.metadata.refs.get(_BRANCH)
    snapshot = table.snapshot_by_id(ref.snapshot_id) if ref else None
    while snapshot is not None:
        yield snapshot.snapshot_id, snapshot.summary.additional_properties if snapshot.summary else {}
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def parse_moment(text: str) -> datetime:
    """An ISO-8601 moment; one without a zone is UTC.

    :raises ValueError: if it is none.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
