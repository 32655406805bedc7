"""How far back a table's rows go, told by its partitions by day, from the list of its manifests alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table


def oldest_day(table: Table, manifests: Iterable[ManifestFile], column: str | None) -> date | None:
    """The day (UTC) before which no row has a time.

    :param manifests: of a snapshot.
    :param column: of the times.
    :return: None if the partitions do not tell, because not all files have such by day of the column.
    """
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.types import DateType
    from pyiceberg.utils.datetime import days_to_date

    positions = {number: _position(table, number, column) for number in table.specs()}
    found = []
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            continue
        position = positions[manifest.partition_spec_id]
        if position is None or not manifest.partitions:
            return None
        # without one, no row has a time at all
        if (lower := manifest.partitions[position].lower_bound) is not None:
            # pyiceberg declares a type for all kinds of bounds
            days: Any = from_bytes(DateType(), lower)
            found.append(days_to_date(days))
    return min(found, default=None)


def _position(table: Table, spec_id: int, column: str | None) -> int | None:
    """Of the partition field by day of a column, in a spec."""
    known = {field.field_id: field.name for field in table.schema().fields}
    for number, field in enumerate(table.specs()[spec_id].fields):
        if known.get(field.source_id) == column and str(field.transform) == "day":
            return number
    return None
