"""Fill placeholders of unchanged values from earlier events of the batch, across key changes, then from the table."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.ingest.fold import is_open, is_suspect, with_late, without_void
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.lookup import MOST_BROADCAST, held_orders, look_up
from lakecdc.model.order import EVENT_DIGITS
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.batch import Batch
    from lakecdc.key_search.places import Places

#: a row is followed across this many key changes within one batch
MAX_KEY_CHANGES = 16
# condition of a folded row with several events, or with a key change
_HAS_PAST = "n_r + n_c + n_u + n_d > 1 OR old_key IS NOT NULL"
# snapshots to search for the row of a key change whose delete was committed by an earlier batch
_MAX_SNAPSHOTS_BACK = 8


@dataclass(frozen=True)
class Completed:
    """Folded rows without open columns.

    :param looked_up: number of rows looked up in the table, or found if only the table was searched.
    :param left_out: folded rows that cannot be completed, if any.
    :param places: places of the table's rows of the keys looked up, and of those in ``beside``; None if unknown.
    """

    rows: DataFrame
    looked_up: int
    left_out: DataFrame | None = None
    places: Places | None = None


def complete(
    folded: DataFrame,
    batch: Batch,
    table: IcebergTable,
    mark: str | None,
    first_order: str | None = None,
    beside: DataFrame | None = None,
) -> Completed:
    """Fill every open column of the folded rows.

    :param folded: result of ``fold``, without rows older than the table's; some have open columns.
    :param batch: its events are searched first.
    :param table: searched for the rest, under the key the row had before the batch.
    :param mark: highest order key applied to the table; events up to it may be in the table already.
    :param first_order: lowest order key of the batch's events; None if unknown.
    :param beside: further keys whose places are needed.
    """
    columns = [c.name for c in batch.columns]
    opened, events = _without_applied(folded.where(is_open()), batch, table, mark, first_order)
    # a table's row as of this same event has moved already
    moved = F.col("old_key").isNotNull() & ~F.col("held")
    pending = opened.select(
        "key",
        F.struct(
            *[F.when(~F.array_contains("open", c), F.struct(F.col("row")[c].alias("v"))).alias(c) for c in columns]
        ).alias("found"),
        F.when(moved, F.col("old_key")).otherwise(F.col("key")).alias("at"),
        "order",
        moved.alias("moved"),
        F.lit("events").alias("state"),
    )
    settled: list[DataFrame] = []
    states: Counter[str] = Counter()
    histories = _histories(events)
    for _ in range(MAX_KEY_CHANGES):
        # a checkpoint per step keeps the plan from growing with the number of key changes
        stepped, counts = _settled(_step_back(pending, histories, columns))
        settled.append(stepped.where("state != 'events'"))
        pending = stepped.where("state = 'events'")
        states += counts
        if not counts["events"]:
            break
    else:
        settled.append(pending.withColumn("state", F.lit("lost")))
        states["lost"] += counts["events"]
    resolved = reduce(lambda a, b: a.unionByName(b), settled)
    places = None
    if states["table"]:
        resolved, missing, places = _from_table(resolved, states["table"], table, batch, beside)
        states["lost"] += missing
    if not states["lost"]:
        return Completed(_put_back(folded, resolved, columns), states["table"], None, places)
    if batch.source.overtaken_below:
        void = (F.col("state") == "lost") & (F.col("order") < batch.source.overtaken_below)
        resolved = resolved.withColumn("state", F.when(void, "void").otherwise(F.col("state")))
    lost = resolved.where("state = 'lost'").select("key")
    left_out = None if lost.isEmpty() else folded.join(lost, "key", "left_semi")
    return Completed(_put_back(folded, resolved, columns), states["table"], left_out, places)


def complete_from_table(
    opened: DataFrame, batch: Batch, table: IcebergTable, beside: DataFrame | None = None
) -> Completed:
    """Fill the open columns of rows that the batch's events cannot fill; the table is read once.

    :param opened: folded rows with open columns, under the keys that the table has.
    :param beside: further keys whose places are needed.
    :return: ``key, op, row, order, source_time`` of the rows that the table has, with event counts.
    """
    counts = _counts_in(opened)
    opened = opened.select("key", "op", "row", "open", "order", "source_time", *counts).localCheckpoint()
    names = opened.agg(F.array_distinct(F.flatten(F.collect_set("open")))).collect()[0][0]
    kinds = {c.name: c.type for c in batch.columns}
    looked_up = look_up(table, opened.select("key.*"), batch.key, columns=[*names, ORDER_COLUMN], beside=beside)
    stored = looked_up.rows.select(
        *[F.col(quoted_column(k)).alias(f"stored_{i}") for i, k in enumerate(batch.key)],
        F.col(ORDER_COLUMN).alias("held"),
        F.struct(*[F.col(quoted_column(c)).cast(kinds[c]).alias(c) for c in names]).alias("stored"),
    )
    is_its = [F.col("key")[k] == F.col(f"stored_{i}") for i, k in enumerate(batch.key)]
    few = opened.count() <= MOST_BROADCAST
    joined = (F.broadcast(opened) if few else opened).join(
        stored, reduce(and_, [*is_its, F.col("held") <= F.col("order")])
    )
    left_out = {c: F.array_contains("open", c) for c in names}
    values = [
        F.when(left_out[c.name], F.col("stored")[c.name]).otherwise(F.col("row")[c.name]).alias(c.name)
        if c.name in left_out
        else F.col("row")[c.name].alias(c.name)
        for c in batch.columns
    ]
    # read once: the table's large values are costly
    whole = "key", "op", F.struct(*values).alias("row"), "order", "source_time"
    rows = joined.select(*whole, *counts).localCheckpoint()
    return Completed(rows, rows.count(), places=looked_up.places)


def _settled(rows: DataFrame) -> tuple[DataFrame, Counter[str]]:
    """Checkpoint rows, and count them by state."""
    settled = rows.localCheckpoint()
    # a shuffle would cost more than it saves
    counts = settled.select("state").coalesce(1).groupBy("state").count().collect()
    return settled, Counter({row["state"]: row["count"] for row in counts})


def _without_applied(
    opened: DataFrame, batch: Batch, table: IcebergTable, mark: str | None, first_order: str | None
) -> tuple[DataFrame, DataFrame]:
    """Remove repeated events that the table's rows include already.

    The stored row includes the events between them. A key change followed from a repeated event would lead to an old
    key whose row no longer exists.

    :param opened: folded rows with open columns.
    :return: these, with ``held``: the table's row is as of this same event; and the remaining events of the batch.
    """
    assert batch.rows is not None
    changes = batch.rows.frame
    # the newest event, sent again, is above the mark only by its place of arrival
    all_new = first_order is not None and mark is not None and first_order[:EVENT_DIGITS] > mark[:EVENT_DIGITS]
    if not mark or not batch.may_be_held or all_new:
        return opened.withColumn("held", F.lit(False)), changes
    changes = with_late(changes)
    followed = opened.select("key").union(changes.where("old_key IS NOT NULL").select("old_key"))
    moved_again = F.col("old_key").isNotNull() & (_event("order") <= mark[:EVENT_DIGITS])
    again = changes.where(is_suspect(mark) | moved_again).join(followed, "key", "left_semi")
    keys = again.select("key.*").distinct().localCheckpoint()
    if keys.isEmpty():
        return opened.withColumn("held", F.lit(False)), changes
    stored = held_orders(table, keys, batch.key).withColumnRenamed("held", "applied")
    stored = F.broadcast(stored.localCheckpoint())
    is_stored = F.coalesce(_event("applied") >= _event("order"), F.lit(False))
    opened = opened.join(stored, "key", "left").withColumn("held", is_stored)
    applied = F.coalesce(F.col("applied") >= F.col("order"), F.lit(False)) | (is_stored & F.col("old_key").isNotNull())
    return opened, changes.join(stored, "key", "left").where(~applied)


def _event(order: str) -> Column:
    """Return an order key without the place of arrival."""
    return F.substring(order, 1, EVENT_DIGITS)


def _histories(events: DataFrame) -> DataFrame:
    """Collect the events of each key, newest first."""
    event = F.struct("order", "op", "open", "old_key", "row")
    history = F.sort_array(F.collect_list(event), asc=False)
    return events.groupBy(F.col("key").alias("at")).agg(history.alias("history"))


def _step_back(pending: DataFrame, histories: DataFrame, columns: list[str]) -> DataFrame:
    """Go one step back: search the earlier events of the row's key, to the insert or key change that began it."""
    moved, order = F.col("moved"), F.col("order")
    joined = pending.join(histories, "at", "left")
    past = F.filter("history", lambda e: (e["order"] < order) | (moved & (e["order"] == order)))
    past = F.coalesce(past, F.filter("history", lambda e: F.lit(False)), F.slice("history", 1, 0))
    joined = joined.withColumn("past", past)
    # the key changed at that time, so a delete right before it belongs to the change
    own_delete = moved & (F.get("past", F.lit(0))["op"] == "d")
    joined = joined.withColumn("past", F.when(own_delete, F.slice("past", 2, F.size("past"))).otherwise(F.col("past")))
    began = F.transform("past", lambda e: (e["op"] != "u") | e["old_key"].isNotNull())
    joined = joined.withColumn("began", F.coalesce(F.array_position(began, True), F.lit(0)).cast("int"))
    joined = joined.withColumn("start", F.when(F.col("began") > 0, F.get("past", F.col("began") - 1)))
    reach = F.when(F.col("began") > 0, F.slice("past", 1, F.col("began"))).otherwise(F.col("past"))
    joined = joined.withColumn("reach", F.filter(reach, lambda e: e["op"] != "d"))
    values = F.struct(*[F.coalesce(F.col("found")[c], _newest("reach", c)).alias(c) for c in columns])
    joined = joined.withColumn("found", values)
    state = (
        F.when(reduce(and_, [F.col("found")[c].isNotNull() for c in columns]), "complete")
        .when(F.col("start").isNull(), "table")
        .when(F.col("start")["old_key"].isNotNull() & (F.col("start")["op"] != "d"), "events")
        .otherwise("lost")
    )
    on = state == "events"
    return joined.select(
        "key",
        "found",
        F.when(on, F.col("start")["old_key"]).otherwise(F.col("at")).alias("at"),
        F.when(on, F.col("start")["order"]).otherwise(order).alias("order"),
        (on | moved).alias("moved"),
        state.alias("state"),
    )


def _newest(events: str, column: str) -> Column:
    """Return the newest real value of a column among events, in a struct because it may be null; null without one."""
    real = F.filter(events, lambda e: ~F.coalesce(F.array_contains(e["open"], column), F.lit(False)))
    return F.when(F.size(real) > 0, F.struct(F.get(real, F.lit(0))["row"][column].alias("v")))


def _from_table(
    resolved: DataFrame, missing: int, table: IcebergTable, batch: Batch, beside: DataFrame | None
) -> tuple[DataFrame, int, Places | None]:
    """Fill the open values from the table, under the key the row had before the batch.

    An earlier batch may have committed the delete of a key change before the insert under the new key. The row is then
    in the snapshot before the delete; its order key distinguishes it from a later row of the same key.

    :param missing: number of rows to look up.
    :param beside: further keys whose places are needed.
    :return: the rows, how many are lost, and places in the head.
    """
    lost, places = 0, None
    for back, snapshot in enumerate(itertools.islice(table.ancestors(), _MAX_SNAPSHOTS_BACK)):
        pending = resolved.where("state = 'table'")
        keys = pending.select("at.*").distinct()
        stored = look_up(table, keys, batch.key, snapshot.id, beside=None if back else beside)
        filled, counts = _settled(_filled(pending, stored.rows, batch))
        resolved = resolved.where("state != 'table'").unionByName(filled)
        missing, lost, places = counts["table"], lost + counts["lost"], places if back else stored.places
        if not missing:
            return resolved, lost, places
    state = F.when(F.col("state") == "table", "lost").otherwise(F.col("state"))
    return resolved.withColumn("state", state), lost + missing, places


def _filled(pending: DataFrame, stored: DataFrame, batch: Batch) -> DataFrame:
    # a column added by this batch is null in every earlier row
    for column in batch.columns:
        if column.name not in stored.columns:
            stored = stored.withColumn(column.name, F.lit(None).cast(column.type))
    stored = stored.select(F.struct(*map(quoted_column, batch.key)).alias("at"), F.struct("*").alias("stored"))
    joined = pending.join(stored, "at", "left")
    stored_order = F.coalesce(F.col("stored")[ORDER_COLUMN], F.lit(""))
    there = F.col("stored").isNotNull() & (stored_order <= F.col("order"))
    values = F.struct(
        *[
            F.coalesce(F.col("found")[c], F.when(there, F.struct(F.col("stored")[c].alias("v")))).alias(c)
            for c in (column.name for column in batch.columns)
        ]
    )
    state = F.when(there, "complete").when(F.col("moved"), "table").otherwise("lost")
    return joined.withColumn("found", values).withColumn("state", state).select(*pending.columns)


def _put_back(folded: DataFrame, resolved: DataFrame, columns: list[str]) -> DataFrame:
    """Return the completed folded rows without lost ones; a row deleted before the full load becomes a delete."""
    row = F.struct(*[F.col("found")[c]["v"].alias(c) for c in columns])
    # a distinct name: Spark may confuse a checkpoint's key with that of the rows it was made from
    completed = resolved.select(F.col("key").alias("c_key"), F.col("state").alias("c_state"), row.alias("c_row"))
    joined = folded.join(completed, F.col("key") == F.col("c_key"), "left")
    void = F.coalesce(F.col("c_state") == "void", F.lit(False))
    return joined.where(F.coalesce("c_state", F.lit("")) != "lost").select(
        "key",
        F.when(void, F.lit("d")).otherwise(F.col("op")).alias("op"),
        F.when(~void, F.coalesce("c_row", "row")).alias("row"),
        "order",
        "source_time",
        *_counts_in(folded),
    )


def _counts_in(folded: DataFrame) -> list[str]:
    """Return the event counts that show an insert; see ``fold.may_have_been``."""
    return [name for name in ("n_c", "n_d") if name in folded.columns]


def past_of(batch: Batch, rows: DataFrame) -> DataFrame:
    """Return the events behind folded rows with placeholders, since the row was whole or had another key."""
    if batch.target.clean is None and rows.where(_HAS_PAST).isEmpty():
        return rows
    names = rows.select("key.*").columns
    places = rows.select(row_key("key", names).alias("place"), "order").localCheckpoint()
    assert batch.rows is not None
    changes = without_void(batch.rows.every_event().frame, batch.truncate_order)
    events = changes.withColumns({"at": row_key("key", batch.key), "was": row_key("old_key", batch.key)})
    last = events.where(is_open()).join(
        places, (F.col("at") == F.col("place")) & events["order"].eqNullSafe(places["order"]), "left_semi"
    )
    gathered = last = last.localCheckpoint()
    for _ in range(MAX_KEY_CHANGES):
        # a row with a changed key has its past under the old key
        ends = last.select(F.coalesce("was", "at").alias("place"), F.col("order").alias("until"))
        before = events.join(ends, F.col("at") == F.col("place")).where("order < until")
        began = F.when(~is_open() | F.col("was").isNotNull(), F.col("order"))
        since = before.groupBy("place", "until").agg(F.max(began).alias("since"))
        past = before.where(is_open()).join(since, ["place", "until"]).where("since IS NULL OR order >= since")
        last = past.select(*events.columns).localCheckpoint()
        gathered = gathered.unionByName(last)
        last = last.where("was IS NOT NULL")
        if last.isEmpty():
            break
    return gathered.select(*changes.columns)
