"""Changes as Debezium's envelopes, in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.changes import CHANGE_TYPE
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.export.destination import Export

# Spark's own cut moments to milliseconds, and leave nulls out
_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_OLD = "delete", "update_before"


def envelopes(export: Export) -> DataFrame:
    """One envelope per change: ``c``, ``u``, ``d``, or ``r`` where all rows are exported.

    :return: the column ``value``.
    """
    from pyspark.sql import functions as F

    before, after = F.col("before"), F.col("after")
    added = "r" if export.since is None else "c"
    op = F.when(before.isNull(), added).when(after.isNull(), "d").otherwise("u")
    found = _images(export).select(
        before, after, _source(export).alias("source"), op.alias("op"), F.lit(export.until.timestamp_ms).alias("ts_ms")
    )
    return found.select(F.to_json(F.struct("*"), _OPTIONS).alias("value"))


def _images(export: Export) -> DataFrame:
    """Rows before and after, side by side where they are of one key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    changes, source = export.changes, export.source
    columns, key = map(quoted_column, source.column_names), list(map(quoted_column, source.identifier_columns))
    is_old = F.col(CHANGE_TYPE).isin(*_OLD)
    row = F.struct(*columns)
    rows = changes.select(
        *(F.col(column).alias(f"key{place}") for place, column in enumerate(key)),
        F.when(is_old, row).alias("before"),
        F.when(~is_old, row).alias("after"),
        is_old.alias("is_old"),
    )
    if not key or export.since is None:
        return rows
    # rows of which several have one key are paired in any order
    of_key = [f"key{place}" for place in range(len(key))]
    number = F.row_number().over(Window.partitionBy(*of_key, "is_old").orderBy(F.lit(0)))
    pairs = rows.withColumn("number", number).groupBy(*of_key, "number")
    return pairs.agg(*(F.first(image, ignorenulls=True).alias(image) for image in ("before", "after")))


def _source(export: Export) -> Column:
    from pyspark.sql import functions as F

    namespace, _, name = export.source.name.rpartition(".")
    told = {
        "connector": "lakecdc",
        "name": export.source.catalog,
        "snapshot": "false" if export.since else "true",
        "schema": namespace,
        "table": name,
        # JavaScript cannot hold 64 bits
        "snapshot_id": str(export.until.id),
    }
    values = [F.lit(value).alias(field) for field, value in told.items()]
    return F.struct(*values, F.lit(export.until.timestamp_ms).alias("ts_ms"))
