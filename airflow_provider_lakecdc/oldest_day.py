"""How far back a table's rows go, told by its partitions by day, from the list of its manifests alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

_EPOCH = date(1970, 1, 1)


def oldest_day(table: Table, manifests: Iterable[ManifestFile], column: str | None) -> date | None:
    """The day (UTC) before which no row has a time.

    :param manifests: of a snapshot.
    :param column: of the times.
    :return: None if the partitions do not tell, because not all files have such by day of the column.
    """
    from pyiceberg.manifest import ManifestContent

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
            found.append(_EPOCH + timedelta(days=int.from_bytes(lower, "little", signed=True)))
    return min(found, default=None)


def _position(table: Table, spec_id: int, column: str | None) -> int | None:
    """Of the partition field by day of a column, in a spec."""
    known = {field.field_id: field.name for field in table.schema().fields}
    for number, field in enumerate(table.specs()[spec_id].fields):
        if known.get(field.source_id) == column and str(field.transform) == "day":
            return number
    return None
