"""Looking up keys in the target by pruned reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.ingest.fold import is_suspect
from lakecdc.sql import quoted_column, sql_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable

_AS_TEXT = ("date", "timestamp_ntz")
_ENDS = ((0, F.min), (1, F.max))


def read_keys(table: IcebergTable, keys: DataFrame, key: Sequence[str], snapshot_id: int | None = None) -> DataFrame:
    """Return the table's visible rows of some keys.

    :param keys: distinct keys, columns as in ``key``.
    :param snapshot_id: state to read; default: the current one.
    :return: under the names that the columns have now.
    """
    return read_between(table, keys, key, snapshot_id).join(F.broadcast(keys), list(key), "left_semi")


def read_between(table: IcebergTable, keys: DataFrame, key: Sequence[str], snapshot_id: int | None = None) -> DataFrame:
    """Return the table's visible rows between the bounds of some keys, and more in their files.

    The bounds are pushed down as literals, so that Iceberg opens only files that can hold one of the keys.

    :param keys: and the others: see :func:`read_keys`.
    """
    types = sql_types(keys)
    ends = keys.agg(*[f(quoted_column(k)).alias(f"m{i}_{j}") for i, k in enumerate(key) for j, f in _ENDS])
    bounds = ends.select(*[plain(f"m{i}_{j}", types[k]) for i, k in enumerate(key) for j, _ in _ENDS]).first()
    assert bounds is not None
    rows = _rows_at(table, snapshot_id)
    for index, name in enumerate(key):
        low, high = bounds[2 * index], bounds[2 * index + 1]
        if low is not None:
            column, kind = F.col(quoted_column(name)), types[name]
            rows = rows.where((column >= _literal(low, kind)) & (column <= _literal(high, kind)))
    return rows


def _rows_at(table: IcebergTable, snapshot_id: int | None) -> DataFrame:
    if snapshot_id is None or ((head := table.head()) and head.id == snapshot_id):
        return table.read()
    # a snapshot is read with the names that its columns had then
    now = table.names_at(snapshot_id)
    rows = table.read(snapshot_id).select(*[F.col(quoted_column(old)).alias(new) for old, new in now.items()])
    if all(old == new for old, new in now.items()):
        return rows
    # but Iceberg takes names in filters for those of now: nothing must get there
    return rows.mapInArrow(_unchanged, rows.schema)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches


def held_orders(table: IcebergTable, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """Order keys of the table's visible rows of some keys: ``key, held``.

    :param keys: distinct keys, columns as in ``key``.
    """
    stored = read_keys(table, keys, key)
    return stored.select(F.struct(*[quoted_column(k) for k in key]).alias("key"), F.col(ORDER_COLUMN).alias("held"))


def plain(column: str, sql_type: str) -> Column:
    """Return a column as values that come back from Python unchanged.

    A ``datetime`` would take this machine's time zone, and py4j takes no ``date`` before the year 1000.
    """
    if sql_type == "timestamp":
        return F.unix_micros(column)
    return F.col(column).cast("string") if sql_type in _AS_TEXT else F.col(column)


def _literal(value: Any, sql_type: str) -> Column:
    """Return a value of :func:`plain` as a literal of its type."""
    if sql_type == "timestamp":
        return F.timestamp_micros(F.lit(value))
    return F.lit(value).cast(sql_type) if sql_type in _AS_TEXT else F.lit(value)


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
    held = held_orders(table, suspects.select("key.*").distinct(), key)
    older = suspects.join(held, "key").where(F.col("held") > F.col("order")).select("key").localCheckpoint()
    return folded.join(F.broadcast(older), "key", "left_anti"), count, older.count()
