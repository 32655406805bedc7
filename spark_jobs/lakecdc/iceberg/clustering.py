"""What a table's rows are clustered by, kept in the table, where no expiry of snapshots removes it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.sort_order import SortOrder, column_order, table_order
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def clustering(table: IcebergTable) -> SortOrder:
    """What every rewrite lays the rows of a table out by.

    What it was last sorted by, unless the table has been given another sort order since; else its sort order, else its
    identifier fields.

    :return: an order without fields if there is none of them.
    """
    own, recorded = table_order(table), _recorded(table)
    columns = _columns(table, recorded, own)
    if columns:
        return column_order(table, columns, recorded.get("curve", "linear"))
    if own.fields or not table.identifier_columns:
        return own
    return column_order(table, table.identifier_columns)


def sorted_snapshots(table: IcebergTable, order: SortOrder) -> set[int]:
    """Snapshots whose files were sorted by an order: those noted in the table, and those its ancestors still tell."""
    return _told_by(table, order, names.SORTED_BY)


def snapshots_with_sorted_rows(table: IcebergTable, order: SortOrder) -> set[int]:
    """The same, and those that compaction made: rows are sorted within each file, whatever the files' ranges."""
    return _told_by(table, order, names.SORTED_BY, names.ROWS_SORTED_BY)


def depth_reached(table: IcebergTable, order: SortOrder) -> float | None:
    """The overlap depth that the last sort by an order ended with; None if there was none, or it was cut short."""
    recorded = _recorded(table)
    return recorded.get("depth") if recorded.get("order") == order.describe() else None


def record_sorted(table: IcebergTable, order: SortOrder, snapshots: Collection[int], depth: float | None) -> None:
    """Note in the table what it is sorted by; no commit if it says so already.

    :param snapshots: those whose files lie so and are still live.
    :param depth: overlap depth reached; None if sorting was cut short.
    """
    own = table_order(table)
    is_own = (order.fields, order.curve) == (own.fields, own.curve)
    fields = None if is_own else [table.field_id(f.column) for f in order.fields]
    note = {
        "order": order.describe(),
        # by field ids, so that a renamed column stays what the table is sorted by
        "fields": fields,
        "curve": order.curve,
        "table_order": own.id,
        "snapshots": sorted(map(str, snapshots)),
        "depth": depth,
    }
    if note != _recorded(table):
        table.update_properties({names.SORTED_LAYOUT: json.dumps(note)})


def _told_by(table: IcebergTable, order: SortOrder, *entries: str) -> set[int]:
    told, recorded = order.describe(), _recorded(table)
    found = {s.id for s in table.ancestors() if told in (s.summary.get(entry) for entry in entries)}
    return found | {int(i) for i in recorded.get("snapshots", ()) if recorded.get("order") == told}


def _recorded(table: IcebergTable) -> dict[str, Any]:
    text = table.properties.get(names.SORTED_LAYOUT)
    return json.loads(text) if text else {}


def _columns(table: IcebergTable, recorded: dict[str, Any], own: SortOrder) -> list[str]:
    """The columns of a record that still holds: the table's own order is what it was, no column was dropped."""
    if not recorded.get("fields") or recorded["table_order"] != own.id:
        return []
    columns = [table.java.schema().findColumnName(i) for i in recorded["fields"]]
    return [] if None in columns else columns
