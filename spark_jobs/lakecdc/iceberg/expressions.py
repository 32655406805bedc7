"""What Spark's parser tells of a SQL expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession


def referenced_columns(spark: SparkSession, sql: str) -> set[str]:
    """Names that an expression refers to, without resolving them; ``*`` for a star.

    Of a nested name such as ``address.city`` only the first part counts.
    """
    leaves = spark._jsparkSession.sessionState().sqlParser().parseExpression(sql).collectLeaves()
    found = set()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        kind = leaf.getClass().getSimpleName()
        if kind == "UnresolvedAttribute":
            found.add(str(leaf.nameParts().apply(0)))
        elif "Star" in kind:
            found.add("*")
    return found


def depends_on_row_alone(frame: DataFrame) -> bool:
    """Whether the columns of a frame are the same each time, and no window over other rows is among them."""
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and not _has_window(plan)


def _has_window(plan: Any) -> bool:
    children = plan.children()
    below = any(_has_window(children.apply(i)) for i in range(children.size()))
    return below or plan.getClass().getSimpleName() == "Window"
