"""Sort columns of a table, for linear orders by untransformed columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakecdc.contract.rewriting import SortDataFilesOptions


def sorted_columns(table: Table, options: SortDataFilesOptions) -> list[int] | None:
    """Return the field ids of the columns that ``sort_data_files`` sorts by; see ``lakecdc.iceberg.sort_order``.

    :return: empty if there is nothing to sort by; None if the order is a curve, has transforms or a missing column.
    """
    schema = table.schema()
    if options.columns:
        known = set(options.columns) <= set(schema.column_names)
        column_ids = [schema.find_field(name).field_id for name in options.columns] if known else None
        curve: str = options.curve or "linear"
    else:
        column_ids, recorded = _clustering(table)
        curve = options.curve or recorded
    return column_ids if curve == "linear" or not column_ids else None


def _clustering(table: Table) -> tuple[list[int] | None, str]:
    """Return columns and curve of the table's last sort, else its sort order, else its identifier fields."""
    schema, own = table.schema(), table.sort_order()
    recorded = json.loads(table.properties.get(names.SORTED_LAYOUT, "{}"))
    fields = recorded.get("fields")
    if fields and recorded["table_order"] == own.order_id and set(fields) <= set(schema.field_ids):
        return list(fields), recorded.get("curve", "linear")
    if any(str(field.transform) != "identity" for field in own.fields):
        return None, "linear"
    key = [field.field_id for field in schema.fields if field.field_id in schema.identifier_field_ids]
    return [field.source_id for field in own.fields] or key, "linear"
