"""Sort orders as Spark expressions: a table's own, and the clustering that its sorts record in a property."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.contract.rewriting import Curve
from lakecdc.iceberg.definition import apply_transform, column_path
from lakecdc.iceberg.jvm import listed
from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lakecdc.iceberg.table import IcebergTable

#: transforms that keep the order of the column's values
_MONOTONIC = {"identity", "truncate", "year", "month", "day", "hour"}


@dataclass(frozen=True)
class SortField:
    """One field of a sort order.

    :param column: full name of the source column.
    :param transform: Iceberg's text of the transform, such as ``identity`` or ``bucket[16]``.
    :param value: the column as Spark SQL.
    :param catalog: has the transform as a function.
    """

    column: str
    transform: str
    value: str
    catalog: str
    descending: bool = False
    nulls_first: bool = True

    @property
    def keeps_order(self) -> bool:
        """Check whether the column's bounds determine a file's range in the order."""
        return self.transform.partition("[")[0] in _MONOTONIC

    @property
    def expression(self) -> str:
        """Return the transformed value as Spark SQL."""
        return self.of(self.value)

    def of(self, value: str) -> str:
        """Apply the transform to another value, as Spark SQL."""
        return apply_transform(self.catalog, self.transform, value)

    def spark_column(self) -> Column:
        """Return the field as a sort column."""
        from pyspark.sql import functions as F

        way = f"{'desc' if self.descending else 'asc'}_nulls_{'first' if self.nulls_first else 'last'}"
        column: Column = getattr(F.expr(self.expression), way)()
        return column


@dataclass(frozen=True)
class SortOrder:
    """Order of rows in a file.

    :param fields: most significant first; empty for unsorted.
    :param id: Iceberg's id of it in the table, 0 if the table has no such order.
    :param curve: ``linear``, or the curve through the space of the fields.
    """

    fields: tuple[SortField, ...] = ()
    id: int = 0
    curve: Curve = "linear"

    @property
    def ascends(self) -> bool:
        """Check whether the order is linear and ascending in all fields."""
        return self.curve == "linear" and bool(self.fields) and not any(f.descending for f in self.fields)

    def describe(self) -> str:
        """Describe the order as text, equal for equal orders."""
        listed = ", ".join(
            f.column + (f" {f.transform}" if f.transform != "identity" else "") + (" desc" if f.descending else "")
            for f in self.fields
        )
        return listed if self.curve == "linear" else f"{self.curve}({listed})"


def table_order(table: IcebergTable) -> SortOrder:
    """Return the table's own sort order; without fields if it has none."""
    java, schema = table.java.sortOrder(), table.java.schema()
    fields = []
    for field in listed(java.fields()):
        column, transform = str(schema.findColumnName(field.sourceId())), str(field.transform().toString())
        fields.append(
            SortField(
                column,
                transform,
                column_path(table, column),
                table.catalog,
                str(field.direction().toString()).upper() == "DESC",
                str(field.nullOrder().toString()).upper() == "NULLS FIRST",
            )
        )
    return SortOrder(tuple(fields), int(java.orderId()))


def column_order(table: IcebergTable, columns: Sequence[str], curve: Curve = "linear") -> SortOrder:
    """Build an ascending order by columns, with the id of the table's own order if that is the same.

    :raises InputError: one of the columns does not exist.
    """
    for column in columns:
        field = table.java.schema().findField(column)
        if field is None or not field.type().isPrimitiveType():
            raise InputError(
                f"Cannot sort by {column!r}: the column does not exist or is nested.",
                table=table.name,
                hint=f"Use columns of {', '.join(table.column_names)}.",
            )
    fields = (SortField(c, "identity", column_path(table, c), table.catalog) for c in columns)
    order, own = SortOrder(tuple(fields), curve=curve), table_order(table)
    return own if own.curve == order.curve and own.fields == order.fields else order


def clustering(table: IcebergTable) -> SortOrder:
    """Return the order that every rewrite applies to a table's rows; without fields if there is none.

    That is the order of the last sort, unless the table's sort order has changed since; or else its sort order or
    identifier fields.
    """
    own, recorded = table_order(table), _recorded(table)
    columns = _columns(table, recorded, own)
    if columns:
        return column_order(table, columns, recorded.get("curve", "linear"))
    if own.fields or not table.identifier_columns:
        return own
    return column_order(table, table.identifier_columns)


def sorted_snapshots(table: IcebergTable, order: SortOrder, compacted: bool = False) -> set[int]:
    """Return the snapshots whose files were sorted by an order, from the table's record and its ancestors.

    :param compacted: add those of compactions, whose rows are sorted only within each file.
    """
    entries = (names.SORTED_BY, names.ROWS_SORTED_BY) if compacted else (names.SORTED_BY,)
    description, recorded = order.describe(), _recorded(table)
    ids = {s.id for s in table.ancestors() if description in (s.summary.get(entry) for entry in entries)}
    return ids | {int(i) for i in recorded.get("snapshots", ()) if recorded.get("order") == description}


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


def _recorded(table: IcebergTable) -> dict[str, Any]:
    text = table.properties.get(names.SORTED_LAYOUT)
    return json.loads(text) if text else {}


def _columns(table: IcebergTable, recorded: dict[str, Any], own: SortOrder) -> list[str]:
    """Return the columns of a record that is still valid: the table's own order is unchanged, no column was dropped."""
    if not recorded.get("fields") or recorded["table_order"] != own.id:
        return []
    columns = [table.java.schema().findColumnName(i) for i in recorded["fields"]]
    return [] if None in columns else columns
