"""What Spark's parser tells of a SQL expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
