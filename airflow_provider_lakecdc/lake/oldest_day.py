"""The oldest day of a table's rows, from day partitions in its manifest list."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table


def oldest_day(table: Table, manifests: Iterable[ManifestFile], column: str | None) -> date | None:
    """Return the day (UTC) before which no row has a time.

    :param manifests: manifests of a snapshot.
    :param column: the time column.
    :return: None if unknown, as not all files are partitioned by the column's day.
    """
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.types import DateType
    from pyiceberg.utils.datetime import days_to_date

    positions = {number: _position(table, number, column) for number in table.specs()}
    days = []
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            continue
        position = positions[manifest.partition_spec_id]
        if position is None or not manifest.partitions:
            return None
        # a missing bound means that no row has a time
        if (lower := manifest.partitions[position].lower_bound) is not None:
            # pyiceberg declares one type for all kinds of bounds
            lower_day: Any = from_bytes(DateType(), lower)
            days.append(days_to_date(lower_day))
    return min(days, default=None)


def _position(table: Table, spec_id: int, column: str | None) -> int | None:
    """Return the position of a column's day field in a partition spec."""
    known = {field.field_id: field.name for field in table.schema().fields}
    for number, field in enumerate(table.specs()[spec_id].fields):
        if known.get(field.source_id) == column and str(field.transform) == "day":
            return number
    return None
