"""Bounds of columns in data files, from the table's metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.file_tasks import FileTask
    from lakecdc.iceberg.table import Field, IcebergTable

#: Iceberg's types whose bounds are read, and what reads the text of one; a date is a number of days since 1970
READ: dict[str, Callable[[str], Any]] = {"int": int, "long": int, "date": int, "string": str}


def file_bounds(table: IcebergTable, tasks: Sequence[FileTask], column: Field) -> list[tuple[Any, Any] | None]:
    """Return the lowest and highest value that each data file can have in a column; None where they are not known.

    Bounds of texts may be cut, the highest one rounded up, and do not cover nulls (specification, "Data File Fields").

    :param tasks: at least one, of one plan; without statistics of the column, nothing is known.
    :param column: of a type in :data:`READ`.
    """
    calls, view, read = java_calls(table.spark), jvm(table.spark), READ[column.type]
    kind, nothing = table.java.schema().findType(column.id), view.java.util.Map.of()
    or_else = calls.method("java.util.Objects", "requireNonNullElse", OBJECT, OBJECT)
    value_of = calls.method("java.util.Map", "get", OBJECT)
    types = "org.apache.iceberg.types.Type", "java.nio.ByteBuffer"
    decoded = calls.method("org.apache.iceberg.types.Conversions", "fromByteBuffer", *types)
    text = calls.method("java.util.Objects", "toString", OBJECT, "java.lang.String")
    ends = [
        text(decoded(kind, value_of(or_else(bounds, nothing), column.id)), None)
        for bounds in calls.content(calls.file, "lowerBounds", "upperBounds")
    ]
    rows = calls.rows(calls.chosen(tasks[0].store.bare, [task.number for task in tasks]), *ends)
    return [None if low is None or high is None else (read(low), read(high)) for low, high in rows]
