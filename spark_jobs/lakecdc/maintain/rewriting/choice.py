"""Choose between tasks and Iceberg's own reader and writer, unit by unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import CONTENT_FILE, FILE_SCAN_TASK, java_calls
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.jvm import java_list
from lakecdc.maintain.run_order import RunOrder
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.reader.projection import read_columns
from lakecdc.writer import parquet

if TYPE_CHECKING:
    from lakecdc.iceberg.sort_order import SortOrder
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.selection import Unit

_READ = {"PARQUET", "ORC"}


def refusals(
    table: IcebergTable, order: SortOrder, units: Sequence[Unit], tasks: Mapping[str, Any]
) -> list[str | None]:
    """Return, for each unit, why Iceberg's reader and writer have to rewrite it; None if tasks can.

    :param tasks: scan tasks of all their files by location.
    """
    if why := _refusal(table, order):
        return [why] * len(units)
    formats, spec_id = _formats(table, tasks), current_spec_id(table)
    return [_refusal_of(unit, formats, spec_id) for unit in units]


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


def _refusal_of(unit: Unit, formats: Mapping[str, str], spec_id: int) -> str | None:
    if others := {formats[file.location] for file in unit.files} - _READ:
        return f"files are in {', '.join(sorted(others))}"
    if unit.piece or {file.spec_id for file in unit.files} != {spec_id}:
        return "rows move to other partitions"
    return None


def _formats(table: IcebergTable, tasks: Mapping[str, Any]) -> dict[str, str]:
    calls = java_calls(table.spark)
    file = calls.method(FILE_SCAN_TASK, "file")(calls.it)
    facts = [calls.method(CONTENT_FILE, name)(file) for name in ("location", "format")]
    return {str(location): str(kind) for location, kind in calls.rows(java_list(table.spark, tasks.values()), *facts)}
