"""Quarantine updates that leave out values which an earlier message in quarantine may have changed.

Completed from the table, they would hide the message's values forever, because its replay is older. They are
quarantined up to the next whole image of the row, and replayed with the message.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest import quarantine
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.ingest.completion import MAX_KEY_CHANGES
from lakecdc.ingest.fold import is_open
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.lookup import held_orders

_REASON = "an earlier message in quarantine may have changed the values that it leaves out: "


def set_apart(batch: Batch, table: IcebergTable | None, waiting: DataFrame | None) -> Batch:
    """Reject the updates of an uncleaned batch that depend on messages in quarantine, and return the batch.

    :param waiting: ``row_key, order`` of the messages in the target's quarantine, if any.
    """
    if batch.rows is None or batch.full_load or not batch.target.keyed:
        return batch
    known = _waiting(batch, waiting)
    if known is None or not _leaves_out(batch.rows, in_order=batch.source.in_order):
        return batch
    rows = batch.rows.every_event()
    batch = replace(batch, rows=rows)
    events = rows.frame.withColumns({"at": row_key("key", batch.key), "was": row_key("old_key", batch.key)})
    known = known.join(events.select(F.col("at").alias("row_key"), "order"), ["row_key", "order"], "left_anti")
    whole = events.where(~is_open()).select("at", F.col("order").alias("whole"))
    dependents = None
    for _ in range(MAX_KEY_CHANGES):
        more = _dependents(events, known, whole, batch, table)
        if dependents is not None:
            more = more.join(dependents.select("order", "key"), ["order", "key"], "left_anti").localCheckpoint()
        if more.isEmpty():
            break
        dependents = more if dependents is None else dependents.unionByName(more)
        # under its new key too, a row with a changed key depends on the message
        known = known.union(more.select("at", "order")).localCheckpoint()
    return batch if dependents is None else _without(batch, rows, dependents)


def _leaves_out(rows: Rows, *, in_order: bool) -> bool:
    """Check whether an event leaves values out, even if a fold has filled them."""
    facts = rows.stats if rows.folded else None
    if facts is not None:
        # in order, waiting messages are older than all events
        return bool(facts.open_keys) or (bool(facts.filled_keys) and not in_order)
    return not rows.frame.where(is_open()).isEmpty()


def _waiting(batch: Batch, waiting: DataFrame | None) -> DataFrame | None:
    """Return the messages with known keys, including the batch's own; None if there are none."""
    frames = [batch.rejected.messages.select("row_key", "order")] if batch.rejected is not None else []
    frames += [waiting] if waiting is not None else []
    if not frames:
        return None
    both = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
    known = both.where("row_key IS NOT NULL AND order IS NOT NULL").localCheckpoint()
    return None if known.isEmpty() else known


def _dependents(
    events: DataFrame, known: DataFrame, whole: DataFrame, batch: Batch, table: IcebergTable | None
) -> DataFrame:
    """Return events with placeholders whose last predecessor is a message in quarantine."""
    # a row with a changed key is identified by its old key
    place = F.coalesce("was", "at")
    before = known.select(F.col("row_key").alias("place"), F.col("order").alias("waits"))
    opened = events.where(is_open()).withColumn("place", place)
    behind = opened.join(before, "place").where("waits < order").groupBy("place", "order", "key")
    candidates = behind.agg(F.max("waits").alias("waits")).localCheckpoint()
    images = whole.withColumnRenamed("at", "place")
    last = candidates.join(images, "place").where("whole < order").groupBy("place", "order", "key")
    judged = candidates.join(last.agg(F.max("whole").alias("whole")), ["place", "order", "key"], "left")
    judged = judged.where("whole IS NULL OR whole < waits")
    stored = _stored(judged.join(opened, ["place", "order", "key"]), batch, table)
    if stored is not None:
        judged = judged.join(stored, "place", "left").where("held IS NULL OR held < waits")
    return opened.join(judged.select("place", "order", "key"), ["place", "order", "key"], "left_semi").localCheckpoint()


def _stored(judged: DataFrame, batch: Batch, table: IcebergTable | None) -> DataFrame | None:
    """Return order keys of the table's rows, ``place, held``; None if they cannot be looked up."""
    clean = batch.target.clean
    names = [clean.renamed(name) if clean else name for name in batch.key]
    if table is None or table.head() is None or not {*names} <= {*table.column_names}:
        return None
    had = F.coalesce("old_key", "key")
    keys = judged.select(*[had[old].alias(new) for old, new in zip(batch.key, names, strict=True)]).distinct()
    orders = held_orders(table, keys.localCheckpoint(), names)
    return orders.select(row_key("key", names).alias("place"), "held")


def _without(batch: Batch, rows: Rows, dependents: DataFrame) -> Batch:
    # a key update is two events of one place
    removed = dependents.select("order", "key").union(
        dependents.where("old_key IS NOT NULL").select("order", "old_key")
    )
    rest = rows.frame.join(F.broadcast(removed), ["order", "key"], "left_anti").select(*rows.frame.columns)
    reason = F.concat(F.lit(_REASON), F.array_join("open", ", "))
    rejected = quarantine.of_events(batch, dependents, quarantine.LOST_RULE, reason)
    return replace(batch, rows=rows.with_frame(rest)).with_rejected(rejected)
