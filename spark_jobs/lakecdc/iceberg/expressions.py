"""Facts about SQL expressions from Spark's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession


def referenced_columns(spark: SparkSession, sql: str) -> set[str]:
    """Return the names in an expression, without resolving them; ``*`` for a star.

    Of a nested name such as ``address.city`` only the first part counts.
    """
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
