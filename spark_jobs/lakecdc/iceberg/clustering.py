"""Clustering of a table's rows, recorded in the table, where snapshot expiry does not remove it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.sort_order import SortOrder, column_order, table_order
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def clustering(table: IcebergTable) -> SortOrder:
    """Return the order that every rewrite applies to a table's rows.

    That is the order of the last sort, unless the table's sort order has changed since; otherwise its sort order, or
    its identifier fields.

    :return: an order without fields if there is none.
    """
    own, recorded = table_order(table), _recorded(table)
    columns = _columns(table, recorded, own)
    if columns:
        return column_order(table, columns, recorded.get("curve", "linear"))
    if own.fields or not table.identifier_columns:
        return own
    return column_order(table, table.identifier_columns)


def sorted_snapshots(table: IcebergTable, order: SortOrder) -> set[int]:
    """Return the snapshots whose files were sorted by an order, from the table's record and its ancestors."""
    return _snapshots_ordered_by(table, order, names.SORTED_BY)


def snapshots_with_sorted_rows(table: IcebergTable, order: SortOrder) -> set[int]:
    """Return sorted snapshots and those of compactions, whose rows are sorted only within each file."""
    return _snapshots_ordered_by(table, order, names.SORTED_BY, names.ROWS_SORTED_BY)


def depth_reached(table: IcebergTable, order: SortOrder) -> float | None:
    """Return the overlap depth after the last sort by an order; None if there was none, or it was cut short."""
    recorded = _recorded(table)
    return recorded.get("depth") if recorded.get("order") == order.describe() else None


def record_sorted(table: IcebergTable, order: SortOrder, snapshots: Collection[int], depth: float | None) -> None:
    """Record in the table what it is sorted by; skip the commit if nothing changed.

    :param snapshots: those whose files are sorted and still live.
    :param depth: overlap depth reached; None if sorting was cut short.
    """
    own = table_order(table)
    is_own = (order.fields, order.curve) == (own.fields, own.curve)
    fields = None if is_own else [table.field_id(f.column) for f in order.fields]
    note = {
        "order": order.describe(),
        # field ids, so that the record survives a renamed column
        "fields": fields,
        "curve": order.curve,
        "table_order": own.id,
        "snapshots": sorted(map(str, snapshots)),
        "depth": depth,
    }
    if note != _recorded(table):
        table.update_properties({names.SORTED_LAYOUT: json.dumps(note)})


def _snapshots_ordered_by(table: IcebergTable, order: SortOrder, *entries: str) -> set[int]:
    description, recorded = order.describe(), _recorded(table)
    ids = {s.id for s in table.ancestors() if description in (s.summary.get(entry) for entry in entries)}
    return ids | {int(i) for i in recorded.get("snapshots", ()) if recorded.get("order") == description}


def _recorded(table: IcebergTable) -> dict[str, Any]:
    text = table.properties.get(names.SORTED_LAYOUT)
    return json.loads(text) if text else {}


def _columns(table: IcebergTable, recorded: dict[str, Any], own: SortOrder) -> list[str]:
    """Return the columns of a record that is still valid: the table's own order is unchanged, no column was dropped."""
    if not recorded.get("fields") or recorded["table_order"] != own.id:
        return []
    columns = [table.java.schema().findColumnName(i) for i in recorded["fields"]]
    return [] if None in columns else columns
