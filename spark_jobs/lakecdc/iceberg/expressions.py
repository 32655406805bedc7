"""SQL expressions as Spark's parser sees them, and Iceberg's and Catalyst's own expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import jvm, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.iceberg.table import IcebergTable

#: types that py4j passes both ways unchanged, with bounds in the same unit in all files
BOUNDED = ("int", "long", "date", "string")


def referenced_columns(spark: SparkSession, sql: str) -> set[str]:
    """Return the names in an expression, unresolved: the first part of a nested name, ``*`` for a star."""
    leaves = spark._jsparkSession.sessionState().sqlParser().parseExpression(sql).collectLeaves()
    names = set()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        kind = leaf.getClass().getSimpleName()
        if kind == "UnresolvedAttribute":
            names.add(str(leaf.nameParts().apply(0)))
        elif "Star" in kind:
            names.add("*")
    return names


def depends_on_row_alone(frame: DataFrame) -> bool:
    """Check whether a frame's columns are deterministic and use no window over other rows."""
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and not _has_window(plan)


def _has_window(plan: Any) -> bool:
    children = plan.children()
    below = any(_has_window(children.apply(i)) for i in range(children.size()))
    return below or plan.getClass().getSimpleName() == "Window"


def every_row(table: IcebergTable) -> Any:
    """Return the Iceberg expression that matches each row."""
    return jvm(table.spark).org.apache.iceberg.expressions.Expressions.alwaysTrue()


def row_filter(table: IcebergTable, column: str, operator: str, value: str) -> Any:
    """Build an Iceberg expression such as ``lessThan(column, value)``."""
    return getattr(jvm(table.spark).org.apache.iceberg.expressions.Expressions, operator)(column, value)


def rows_not_below(table: IcebergTable, column: str, value: str) -> Any:
    """Build the Iceberg expression of rows whose value in a column is not lower, or is null."""
    known = row_filter(table, column, "greaterThanOrEqual", value)
    expressions = jvm(table.spark).org.apache.iceberg.expressions.Expressions
    return getattr(expressions, "or")(expressions.isNull(column), known)


def rows_within(table: IcebergTable, where: Any | None, files: Sequence[Any]) -> Any:
    """Build the Iceberg expression of rows between the bounds of staged files.

    :param files: Java content files with the metrics of the columns to compare; columns without bounds compare nothing.
    """
    kinds = {field.id: field for field in table.fields if field.type in BOUNDED}
    ends = {
        kinds[number].name: _ends(table, number, kinds[number].type, files)
        for number in (listed(files[0].equalityFieldIds()) if files else ())
        if number in kinds
    }
    return rows_between(table, {name: pair for name, pair in ends.items() if pair is not None}, where)


def rows_between(table: IcebergTable, ends: Mapping[str, tuple[Any, Any]], where: Any | None = None) -> Any:
    """Build the Iceberg expression of rows between the ends of columns, see :func:`comparable_ends`."""
    expressions = jvm(table.spark).org.apache.iceberg.expressions.Expressions
    both, left = getattr(expressions, "and"), where or expressions.alwaysTrue()
    for name, (low, high) in ends.items():
        left = both(left, both(expressions.greaterThanOrEqual(name, low), expressions.lessThanOrEqual(name, high)))
    return left


def comparable_ends(kind: str, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return the lowest and highest value of a column of a type in :data:`BOUNDED`; None if Iceberg refuses them.

    py4j hands over a small number as ``Integer``, which Iceberg does not accept as a timestamp.
    """
    is_refused = kind.startswith("timestamp") and min(abs(low), abs(high)) < 2**31
    return None if is_refused else (low, high)


def _ends(table: IcebergTable, number: int, kind: str, files: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the lowest and highest value of a column in files; None if a file has nulls or lacks bounds."""
    read = jvm(table.spark).org.apache.iceberg.types.Conversions.fromByteBuffer
    java_type = table.java.schema().findType(number)
    lows, highs = [], []
    for file in files:
        counts, bounds = file.nullValueCounts(), (file.lowerBounds(), file.upperBounds())
        if not counts or counts.get(number) != 0 or not all(bound and bound.get(number) for bound in bounds):
            return None
        low, high = (read(java_type, bound.get(number)) for bound in bounds)
        lows.append(low.toString() if kind == "string" else low)
        highs.append(high.toString() if kind == "string" else high)
    # Python orders texts by code points, as Iceberg orders their UTF-8
    return comparable_ends(kind, min(lows), max(highs))


def rows_below(table: IcebergTable, column: str, value: str) -> Any:
    """Build the Iceberg expression of rows with a lower value in a column.

    ``lessThan`` alone is true for a partition of nulls, which Iceberg compares as the lowest value.
    """
    known = row_filter(table, column, "lessThan", value)
    expressions = jvm(table.spark).org.apache.iceberg.expressions.Expressions
    return getattr(expressions, "and")(expressions.notNull(column), known)
