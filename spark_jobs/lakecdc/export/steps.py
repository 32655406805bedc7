"""Build every step of a table's rows between two snapshots from the new events of its history table.

Each event is one step from the row before it to the row after it. The row before comes from the last exported snapshot
or, for keys with late events, from their earlier events. In the end each row must equal the table's row; otherwise a
step is missing and the export is refused.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakecdc import changes
from lakecdc.changes import CHANGE_TYPE
from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.dimensions.versions import exact_row
from lakecdc.iceberg.definition import refuse_merged, source_types
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.ingest.api import Column, changes_of, count_unknown, read_keys, struct_of, table_floor, whole_rows
from lakecdc.maintain.rollback import state_beside
from lakecdc.metadata import names
from lakecdc.metadata.floor import read_floor
from lakecdc.metadata.positions import Position, read_side_of
from lakecdc.moments.events import emptying, touched_keys

_HINT = "Remove the table from options.history_tables for one run to export its net changes."
# jobs that remove rows without an event
_REMOVING = ("expire_partitions", "erase_rows")


def steps(table: IcebergTable, history: IcebergTable, since: Snapshot, until: Snapshot, net: DataFrame) -> DataFrame:
    """Return the steps between two snapshots of a table, in source order.

    :param since: the last exported snapshot, an ancestor of ``until``.
    :param net: the net changes of :func:`lakecdc.changes.between`, checkpointed by Spark.
    :return: the table's columns and ``_change_type``; order key and source time are those of the event, null for a row
        removed without one.
    :raises InputError: the history table does not have every step; the message says why.
    """
    return _Steps(table, history, since, until).rows(net)


class _Steps:
    def __init__(self, table: IcebergTable, history: IcebergTable, since: Snapshot, until: Snapshot) -> None:
        refuse_merged(table, "a single event is not a change between two of its rows")
        self._table, self._history, self._since = table, history, since
        self._columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
        self._between = _between(table, since, until)
        self._known, self._low = self._beside(since)
        self._position, self._high = self._beside(until)
        self._refuse_gaps()

    def rows(self, net: DataFrame) -> DataFrame:
        with changes.between(self._history, self._low, self._high, key=()) as net_events:
            # removed rows existed before and are not steps
            added = net_events.where(f"{CHANGE_TYPE} = 'insert'").localCheckpoint()
        events = self._events(added)
        whole = whole_rows(events)
        if unknown := count_unknown(whole):
            raise self._refusal(f"Neither the history table nor the table has {unknown} of their values.")
        whole = self._without_expired(whole).localCheckpoint()
        of_key = Window.partitionBy("key").orderBy("order")
        before = F.lag(F.struct("op", "row")).over(of_key)
        after = F.when(F.col("op") != "d", F.col("row"))
        pairs = whole.select(
            "is_new",
            F.when(before["op"] != "d", before["row"]).alias("before"),
            after.alias("after"),
            F.col("order").alias(ORDER_COLUMN),
            F.col("source_time").alias(TIME_COLUMN),
        )
        images = self._images(pairs.where("is_new").drop("is_new"))
        removals = self._removals(whole, net)
        rows = images if removals is None else images.unionByName(removals)
        second = F.col(CHANGE_TYPE) == "update_after"
        return rows.orderBy(F.asc_nulls_last(ORDER_COLUMN), second)

    def _beside(self, snapshot: Snapshot) -> tuple[Position, Snapshot]:
        """Return a snapshot's position and its state in the history table."""
        ancestors = list(self._table.ancestors_of(snapshot))
        carrier, state = carrier_of(ancestors), state_beside(self._history, self._table, ancestors)
        if carrier is None or state is None:
            raise self._refusal(f"It does not go back to snapshot {snapshot.id}.")
        return carrier.position, state

    def _refuse_gaps(self) -> None:
        for snapshot in self._history.ancestors_of(self._high):
            if snapshot.id == self._low.id:
                break
            note = read_side_of(snapshot.summary)
            if note is not None and note.full_load:
                raise self._refusal("It was fully reloaded in between, so the events of that time are not known.")
        else:
            raise self._refusal("It was rolled back in between, or its snapshots have expired.")
        floor, through = read_floor(self._history.properties, self._history.name), self._known.read_through
        if floor is not None and (through is None or floor.below > parse_moment(through, names.READ_THROUGH)):
            raise self._refusal(f"Its events from before {floor.below.isoformat()} have been removed.")

    def _events(self, added: DataFrame) -> DataFrame:
        """Return a change frame with ``is_new``: new events, rows before, earlier events of keys with late events."""
        new = self._changes(added).localCheckpoint()
        truncates = self._truncates(added)
        start = self._start(new, everything=not truncates.isEmpty()).localCheckpoint()
        mark = self._known.high_order
        late = new.where(F.col("order") <= (mark or ""))
        # rows that left their old key before the start
        there = start.select(F.col("key").alias("old_key"))
        moved = new.where("old_key IS NOT NULL").join(there, "old_key", "left_anti").select(*new.columns)
        searched = late.unionByName(moved)
        parts = [start.withColumns({"is_new": F.lit(False), "rank": F.lit(0)})]
        if not searched.isEmpty():
            stored = self._history.read(self._low.id)
            earlier = self._changes(stored)
            touched = touched_keys(earlier.unionByName(new), searched)
            mine = earlier.join(touched, earlier["key"].eqNullSafe(touched["touched"]), "left_semi")
            parts.append(mine.withColumns({"is_new": F.lit(False), "rank": F.lit(1)}))
            parts.append(self._emptied(touched.select(F.col("touched").alias("key")), self._truncates(stored), False))
        parts.append(new.withColumns({"is_new": F.lit(True), "rank": F.lit(2)}))
        parts.append(self._emptied(new.select("key").union(start.select("key")), truncates, True))
        union = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        # a row of the table is complete, its event may be partial
        again = F.row_number().over(Window.partitionBy("key", "order").orderBy("rank"))
        return union.withColumn("again", again).where("again = 1").drop("again", "rank").localCheckpoint()

    def _changes(self, rows: DataFrame) -> DataFrame:
        return changes_of(rows, self._columns, self._table.identifier_columns)

    def _truncates(self, rows: DataFrame) -> DataFrame:
        """Return order key and time of the TRUNCATEs that emptied the table."""
        emptied = emptying(rows, self._position.truncate_order)
        return emptied.select(F.col(ORDER_COLUMN).alias("order"), F.col(TIME_COLUMN).alias("source_time")).distinct()

    def _emptied(self, keys: DataFrame, truncates: DataFrame, is_new: bool) -> DataFrame:
        ends = keys.distinct().crossJoin(F.broadcast(truncates))
        return ends.withColumns({"op": F.lit("d"), "is_new": F.lit(is_new), "rank": F.lit(3)})

    def _start(self, new: DataFrame, *, everything: bool) -> DataFrame:
        """Return the last exported rows for the keys of some events, or for all, as a change frame."""
        table, key = self._table, self._table.identifier_columns
        if everything:
            with changes.between(table, None, self._since) as all_rows:
                rows = all_rows.localCheckpoint()
        else:
            keys = new.select("key").union(new.where("old_key IS NOT NULL").select("old_key"))
            rows = read_keys(table, keys.select("key.*").distinct(), key, self._since.id)
        return rows.select(
            F.lit("r").alias("op"),
            self._key(rows),
            self._row(rows),
            F.lit(None).cast("array<string>").alias("open"),
            F.lit(None).cast(new.schema["old_key"].dataType).alias("old_key"),
            F.coalesce(ORDER_COLUMN, F.lit("")).alias("order"),
            F.col(TIME_COLUMN).alias("source_time"),
        )

    def _key(self, rows: DataFrame) -> Expression:
        kinds = {c.name: c for c in self._columns}
        return struct_of(rows, [kinds[name] for name in self._table.identifier_columns]).alias("key")

    def _row(self, rows: DataFrame) -> Expression:
        return struct_of(rows, self._columns).alias("row")

    def _without_expired(self, rows: DataFrame) -> DataFrame:
        """Convert new rows below the table's floor to deletes, because ingestion skipped them."""
        floor = table_floor(self._table)
        below = floor.condition(c.name for c in self._columns) if floor else None
        if below is None:
            return rows
        judged = rows.select(F.struct(*rows.columns).alias("_lakecdc_step"), "row.*")
        is_low = F.expr(f"_lakecdc_step.is_new AND {below}")
        op = F.when(is_low, "d").otherwise(F.col("_lakecdc_step.op"))
        return judged.select("_lakecdc_step.*", op.alias("judged")).drop("op").withColumnRenamed("judged", "op")

    def _images(self, pairs: DataFrame) -> DataFrame:
        both = F.col("before").isNotNull() & F.col("after").isNotNull()
        kinds = F.array(
            F.struct(F.when(both, "update_before").otherwise("delete").alias("kind"), F.col("before").alias("row")),
            F.struct(F.when(both, "update_after").otherwise("insert").alias("kind"), F.col("after").alias("row")),
        )
        images = pairs.select(ORDER_COLUMN, TIME_COLUMN, F.explode(kinds).alias("image")).where("image.row IS NOT NULL")
        own = {ORDER_COLUMN, TIME_COLUMN}
        columns = [
            F.col(name) if name in own else F.col("image")["row"][name].alias(name) for name in self._table.column_names
        ]
        return images.select(*columns, F.col("image")["kind"].alias(CHANGE_TYPE))

    def _removals(self, whole: DataFrame, net: DataFrame) -> DataFrame | None:
        """Return deletes of rows removed without an event, by expiry or erasure; refuse other differences."""
        ends = whole.groupBy("key").agg(F.max_by(F.struct("op", "row"), "order").alias("last"))
        from_events = ends.select("key", F.when(F.col("last")["op"] != "d", F.col("last")["row"]).alias("row"))
        from_events = from_events.select("key", exact_row(from_events).alias("replayed"), F.col("row").alias("end"))
        changed = net.where(f"{CHANGE_TYPE} != 'update_before'")
        is_deleted = (F.col(CHANGE_TYPE) == "delete").alias("is_deleted")
        current = changed.select(self._key(changed), self._row(changed), is_deleted)
        current = current.withColumn("stored", F.when(~F.col("is_deleted"), exact_row(current)))
        compared = current.join(from_events.withColumn("known", F.lit(True)), "key", "left")
        others = compared.where(
            ~(F.col("known") & F.col("replayed").eqNullSafe(F.col("stored"))) | F.col("known").isNull()
        )
        others = others.localCheckpoint()
        removed = any(each.summary.get(names.JOB) in _REMOVING for each in self._between)
        if different := others.where(~(F.col("is_deleted") & F.lit(removed))).count():
            raise self._refusal(f"{different} rows differ from the result of their events.")
        if others.isEmpty():
            return None
        none = others.select(
            F.coalesce("end", "row").alias("before"),
            F.lit(None).cast(others.schema["row"].dataType).alias("after"),
            F.lit(None).cast("string").alias(ORDER_COLUMN),
            F.lit(None).cast("timestamp").alias(TIME_COLUMN),
        )
        return self._images(none)

    def _refusal(self, why: str) -> InputError:
        message = f"The history table {self._history.name} does not have every step since snapshot {self._since.id}."
        return InputError(f"{message} {why}", table=self._table.name, hint=_HINT)


def _between(table: IcebergTable, since: Snapshot, until: Snapshot) -> list[Snapshot]:
    snapshots: list[Snapshot] = []
    for snapshot in table.ancestors_of(until):
        if snapshot.id == since.id:
            return snapshots
        snapshots.append(snapshot)
    raise InputError(
        f"The last exported snapshot {since.id} was rolled back, and the history table has no events for that.",
        table=table.name,
        hint=_HINT,
    )
