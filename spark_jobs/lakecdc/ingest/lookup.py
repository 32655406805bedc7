"""Looking up keys in the target by pruned reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg.definition import quoted_column
from lakecdc.ingest.fold import is_suspect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable


def read_keys(table: IcebergTable, keys: DataFrame, key: Sequence[str], snapshot_id: int | None = None) -> DataFrame:
    """The table's visible rows of some keys.

    The keys' bounds are pushed down as literals, so that Iceberg opens only files that can hold one of them.

    :param keys: distinct keys, columns as in ``key``.
    :param snapshot_id: state to read; default: the current one.
    """
    names = [quoted_column(name) for name in key]
    bounds = keys.agg(*[f(name) for name in names for f in (F.min, F.max)]).first()
    rows = table.read(snapshot_id)
    for index, name in enumerate(names):
        low, high = bounds[2 * index], bounds[2 * index + 1]  # type: ignore[index]
        if low is not None:
            rows = rows.where((F.col(name) >= F.lit(low)) & (F.col(name) <= F.lit(high)))
    return rows.join(F.broadcast(keys), list(key), "left_semi")


def drop_older(folded: DataFrame, table: IcebergTable, key: Sequence[str], mark: str) -> tuple[DataFrame, int, int]:
    """Leave out folded rows that are older than what the table holds.

    Only *suspects* are looked up: a row that is late in its own source partition and whose order key does not lie above
    the highest one applied so far.
    "Not older" wins: a row with the stored order key is applied again, which changes nothing.

    :param folded: result of ``fold``.
    :param mark: highest order key applied to the table.
    :return: the rows that remain, the number of suspects, and how many of them were older.
    """
    suspects = folded.where(is_suspect(mark)).select("key", "order").localCheckpoint()
    count = suspects.count()
    if not count:
        return folded, 0, 0
    stored = read_keys(table, suspects.select("key.*").distinct(), key)
    held = stored.select(F.struct(*[quoted_column(k) for k in key]).alias("key"), F.col(ORDER_COLUMN).alias("held"))
    older = suspects.join(held, "key").where(F.col("held") > F.col("order")).select("key").localCheckpoint()
    return folded.join(F.broadcast(older), "key", "left_anti"), count, older.count()
