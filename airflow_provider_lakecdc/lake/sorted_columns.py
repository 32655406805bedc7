"""What a table's rows are sorted by, as the Airflow side tells it: linear orders by columns as they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakecdc.contract.options import SortDataFilesOptions


def sorted_columns(table: Table, options: SortDataFilesOptions) -> list[int] | None:
    """Field ids of the columns that ``sort_data_files`` sorts by, as ``lakecdc.iceberg.clustering`` has it.

    :return: none if there is nothing to sort by; None if the order is a curve, has transforms, or a column that is not
        there.
    """
    schema = table.schema()
    if options.columns:
        known = set(options.columns) <= set(schema.column_names)
        found = [schema.find_field(name).field_id for name in options.columns] if known else None
        curve: str = options.curve or "linear"
    else:
        found, recorded = _clustering(table)
        curve = options.curve or recorded
    return found if curve == "linear" or not found else None


def _clustering(table: Table) -> tuple[list[int] | None, str]:
    """Columns and curve of what the table was last sorted by, else its sort order, else its identifier fields."""
    schema, own = table.schema(), table.sort_order()
    recorded = json.loads(table.properties.get(names.SORTED_LAYOUT, "{}"))
    fields = recorded.get("fields")
    if fields and recorded["table_order"] == own.order_id and set(fields) <= set(schema.field_ids):
        return list(fields), recorded.get("curve", "linear")
    if any(str(field.transform) != "identity" for field in own.fields):
        return None, "linear"
    key = [field.field_id for field in schema.fields if field.field_id in schema.identifier_field_ids]
    return [field.source_id for field in own.fields] or key, "linear"
