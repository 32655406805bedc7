"""What frames of changes share: the columns of rejected messages, keys and rows as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.sql import exact_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: what a message that cannot be applied leaves behind
REJECTED = ("rule", "reason", *MESSAGE, "source_table", "order", "source_time", "row_key")


def listed(names: Sequence[Column]) -> Column:
    """Return the names that are not null, in one text; empty if there are none."""
    return F.concat_ws(", ", *names) if names else F.lit("")


def no_key() -> Column:
    """Return the key of a table that has none; Spark stores no struct without fields."""
    return F.struct(F.lit(None).cast("string").alias("none"))


def row_key(column: str, names: Sequence[str]) -> Column:
    """Return the values of a key struct as text, whatever its columns are called; null without a key."""
    values = F.struct(*[F.col(column)[name].alias(f"k{i}") for i, name in enumerate(names)])
    return F.when(F.col(column).isNotNull(), exact_json(values))


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return all rows of several change frames."""
    return reduce(lambda a, b: a.unionByName(b), frames)
