"""Iceberg expressions that select rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def every_row(table: IcebergTable) -> Any:
    """Return the Iceberg expression that matches each row."""
    return jvm(table.spark).org.apache.iceberg.expressions.Expressions.alwaysTrue()


def row_filter(table: IcebergTable, column: str, operator: str, value: str) -> Any:
    """Build an Iceberg expression such as ``lessThan(column, value)``.

    :param operator: name of a method of Iceberg's ``Expressions``.
    """
    return getattr(jvm(table.spark).org.apache.iceberg.expressions.Expressions, operator)(column, value)


def rows_below(table: IcebergTable, column: str, value: str) -> Any:
    """Build the Iceberg expression of rows with a lower value in a column.

    ``lessThan`` alone is true for a partition of nulls, which Iceberg compares as the lowest value.
    """
    known = row_filter(table, column, "lessThan", value)
    expressions = jvm(table.spark).org.apache.iceberg.expressions.Expressions
    return getattr(expressions, "and")(expressions.notNull(column), known)
