"""Remember erased keys as hashes, so that earlier events do not bring their rows back.

One Iceberg table per target, ``<table>_lakecdc_erased``: the hash of the key, salted with the target's UUID, and the
target's highest order key at that time, for each job that feeds it (the setting ``feed``). An event above it is new:
the source has the row again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.scan import TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.table import IcebergTable, Snapshot, open_if_there
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.fold import with_late
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.lookup import read_keys
from lakecdc.metadata.names import ERASED_SUFFIX
from lakecdc.sql import EXACT_JSON, exact_json, quoted_column

_HASH = "key_hash"
_FEED = "feed"


def key_in_field_order(table: IcebergTable, key: Sequence[str]) -> tuple[str, ...]:
    """Return key columns in the order of field ids, which hashes use regardless of the order in source or spec."""
    return tuple(sorted(key, key=table.field_id))


def erased_key_hash(uuid: str, text: Column) -> Column:
    """Return the hash, salted with the UUID, of a key's text: ``row_key`` of :func:`key_in_field_order`."""
    return F.sha2(F.concat(F.lit(uuid), text), 256)


def remember_erased(target: IcebergTable, texts: DataFrame, order: str, feed: str = "") -> None:
    """Remember keys, see :func:`erased_key_hash`, and the highest order key that a feed has applied to the target."""
    table = _open(target) or _create(target)
    definition.evolve(table, [(_FEED, "string")])
    values = {_HASH: erased_key_hash(target.uuid, F.col("text")), ORDER_COLUMN: F.lit(order), _FEED: F.lit(feed)}
    rows = texts.select(*[value.alias(name) for name, value in values.items()])
    known = _of_feed(table, feed).where(F.col(ORDER_COLUMN) >= order).select(_HASH)
    rows.join(known, _HASH, "left_anti").coalesce(1).writeTo(table.sql_name).append()


def erased_keys(target: IcebergTable, suspects: DataFrame, key: Sequence[str], feed: str = "") -> DataFrame | None:
    """Return the keys of a feed's ``key, order`` that were erased later: ``key``; None if none was ever erased."""
    table = _open(target)
    if table is None:
        return None
    hashed = _hashed(suspects, target, key)
    return hashed.join(_newest(table, feed), _HASH).where(F.col("order") <= F.col("erased")).select("key")


def without_erased(batch: Batch, target: IcebergTable) -> Batch:
    """Return the events of a batch for a change log, without late ones of keys erased from its target."""
    if batch.source.in_order or batch.rows is None or not batch.key:
        return batch
    table = _open(target)
    if table is None:
        return batch
    events = batch.rows.every_event()
    changes = events.frame
    newest = F.broadcast(_newest(table, batch.target.feed))
    hashed = _hashed(with_late(changes), target, batch.key).join(newest, _HASH, "left")
    is_erased = F.coalesce((F.col("order") <= F.col("erased")) & F.coalesce("late", F.lit(True)), F.lit(False))
    remaining = hashed.where(~is_erased).select(*changes.columns)
    return replace(batch, rows=events.with_frame(remaining))


def withhold_erased(messages: DataFrame, target: IcebergTable, key: Sequence[str], feed: str = "") -> DataFrame:
    """Drop a feed's late messages of erased keys, and remove the content of messages that may be of one.

    :param key: of the target, in the order of ``row_key``.
    """
    table = _open(target)
    if table is None:
        return messages
    newest, order = _newest(table, feed).localCheckpoint(), F.col("order_key")
    (row,) = newest.agg(F.max("erased")).collect()
    text = _in_field_order(target, key)
    judged = messages.withColumn(_HASH, erased_key_hash(target.uuid, text)).join(F.broadcast(newest), _HASH, "left")
    is_of_erased = F.col("erased").isNotNull()
    judged = judged.where(~F.coalesce(is_of_erased & (order <= F.col("erased")), F.lit(False)))
    # without a key it may be of an erased row, without an order key it may be older
    unsure = F.when(F.col(_HASH).isNull(), order.isNull() | (order <= F.lit(row[0]))).otherwise(
        is_of_erased & order.isNull()
    )
    emptied = {
        name: F.when(unsure, F.lit(None)).otherwise(F.col(name))
        for name in ("raw_key", "raw_value", "headers", "row_key")
    }
    emptied["withheld"] = F.when(unsure, F.lit(True)).otherwise(F.col("withheld"))
    return judged.withColumns(emptied).drop(_HASH, "erased")


def _in_field_order(target: IcebergTable, key: Sequence[str]) -> Column:
    """Return ``row_key`` with its columns in :func:`key_in_field_order`; null if unknown."""
    order = key_in_field_order(target, key)
    if order == tuple(key):
        return F.col("row_key")
    types = definition.spark_types(target)
    values = F.from_json("row_key", ", ".join(f"k{i} {types[name]}" for i, name in enumerate(key)), EXACT_JSON)
    parts = [values[f"k{key.index(name)}"] for name in order]
    text = exact_json(F.struct(*[part.alias(f"k{i}") for i, part in enumerate(parts)]))
    return F.when(reduce(and_, [part.isNotNull() for part in parts]), text)


def count_returned_rows(target: IcebergTable, batch: Batch, files: Sequence[Any], before: Snapshot | None) -> int:
    """Count the erased rows that a batch has restored in a target with the head ``before``.

    :param files: the data files of a full load, to read instead of its source.
    """
    erased = _open(target)
    if erased is None or batch.rows is None or (batch.full_load and not files):
        return 0
    if not batch.full_load:
        return _returned(target, erased, batch.rows.frame.where("op != 'd'").select("key.*"), batch.key, before)
    build = TaskBuilder(target)
    with staged_tasks(target, [build.task(file) for file in files]) as group:
        return _returned(target, erased, read_staged(target, group), batch.key, before)


def _returned(
    target: IcebergTable, erased: IcebergTable, rows: DataFrame, key: Sequence[str], before: Snapshot | None
) -> int:
    named = [quoted_column(k) for k in key]
    hashed = _hashed(rows.select(F.struct(*named).alias("key")), target, key)
    known = erased.read().select(_HASH).distinct()
    back = hashed.join(known, _HASH, "left_semi").select("key.*").distinct().localCheckpoint()
    count = back.count()
    if not count or before is None:
        return count
    return count - read_keys(target, back, key, before.id, columns=()).select(*named).distinct().count()


def _hashed(rows: DataFrame, target: IcebergTable, key: Sequence[str]) -> DataFrame:
    """Add the hash of the struct ``key``."""
    return rows.withColumn(_HASH, erased_key_hash(target.uuid, row_key("key", key_in_field_order(target, key))))


def _newest(table: IcebergTable, feed: str) -> DataFrame:
    return _of_feed(table, feed).groupBy(_HASH).agg(F.max(ORDER_COLUMN).alias("erased"))


def _of_feed(table: IcebergTable, feed: str) -> DataFrame:
    """Read what was remembered for a feed; rows of before the column existed count for every feed."""
    rows = table.read()
    return rows.where(F.col(_FEED).isNull() | (F.col(_FEED) == feed)) if _FEED in table.column_names else rows


def _create(target: IcebergTable) -> IcebergTable:
    columns = [(_HASH, "string", True), (ORDER_COLUMN, "string", True), (_FEED, "string", False)]
    return definition.create_side_table(target.spark, target.catalog, target.name + ERASED_SUFFIX, columns)


def _open(target: IcebergTable) -> IcebergTable | None:
    return open_if_there(target.spark, target.catalog, target.name + ERASED_SUFFIX)
