"""Shared parts of change frames: the columns of rejected messages, keys and rows as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.sql import exact_json

#: columns of a rejected message
REJECTED = ("rule", "reason", *MESSAGE, "source_table", "order", "source_time", "row_key")


def row_key(column: str, names: Sequence[str]) -> Column:
    """Return the values of a key struct as text, without column names; null without a key."""
    values = F.struct(*[F.col(column)[name].alias(f"k{i}") for i, name in enumerate(names)])
    return F.when(F.col(column).isNotNull(), exact_json(values))
