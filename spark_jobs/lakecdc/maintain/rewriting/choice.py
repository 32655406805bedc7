"""Choose between tasks and Iceberg's own reader and writer, unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakecdc.iceberg.definition import current_spec_id
from lakecdc.maintain.run_order import RunOrder
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.reader.projection import read_columns
from lakecdc.writer import parquet

if TYPE_CHECKING:
    from lakecdc.iceberg.sort_order import SortOrder
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.selection import Unit


def refusals(table: IcebergTable, order: SortOrder, units: Sequence[Unit]) -> list[str | None]:
    """Return, for each unit, why Iceberg's reader and writer have to rewrite it; None if tasks can."""
    if why := _refusal(table, order):
        return [why] * len(units)
    spec_id = current_spec_id(table)
    return [_refusal_of(unit, spec_id) for unit in units]


def run_order(table: IcebergTable, order: SortOrder) -> RunOrder | None:
    """Return the order for tasks; None if they cannot evaluate it."""
    types = {column.name: column.sql_type for column in read_columns(table.schema_fields)}
    return RunOrder.of(order, {name: kind for name, kind in types.items() if kind is not None})


def _refusal(table: IcebergTable, order: SortOrder) -> str | None:
    if table.format_version > NEWEST_VERSION:
        return f"the table has format version {table.format_version}"
    if run_order(table, order) is None:
        return f"tasks cannot sort by {order.describe()}"
    # new files stay in the partition of the old files
    return parquet.files_refusal(table)


def _refusal_of(unit: Unit, spec_id: int) -> str | None:
    if unit.piece or {file.spec_id for file in unit.files} != {spec_id}:
        return "rows move to other partitions"
    return None
