"""Merge a batch with the rows that its table has of the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import Merge
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.definition import source_types
from lakecdc.ingest import tombstones
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import completed
from lakecdc.ingest.fold import is_open, with_late, without_void
from lakecdc.ingest.lookup import LookedUp, look_up, read_keys
from lakecdc.ingest.merging.combine import Rules
from lakecdc.ingest.merging.contributions import contributions_of, merged, without_erased
from lakecdc.ingest.reconciliation import remember_waited_for, state_of
from lakecdc.ingest.table_feed import TableFeed
from lakecdc.model.merge_slots import REMOVED_COLUMN
from lakecdc.model.order import void_sql

_IS_MOVED_OPEN = "op != 'd' AND coalesce(size(open), 0) > 0 AND old_key IS NOT NULL"


@dataclass(frozen=True)
class Merging:
    """Merges the events of a batch with the rows of its table.

    :param batch: cleaned.
    :param mark: highest order key that the table has applied; None if it was never fed.
    :param has_late: the table may have applied something newer than an event.
    :param keep_incomplete: quarantines events that leave out values which nothing else has, given the batch and these.
    """

    feed: TableFeed
    batch: Batch
    merge: Merge
    mark: str | None
    has_late: bool
    keep_incomplete: Callable[[Batch, DataFrame], None]

    @contextmanager
    def merged(self) -> Iterator[Batch]:
        """Yield the batch with all columns of the table, and with one row per key as the table should have it."""
        feed, batch, table = self.feed, self.batch, self.feed.existing
        assert batch.rows is not None
        columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
        rules, state = Rules(self.merge, columns, batch.key), state_of(table)
        with ExitStack() as stack:
            events = _persisted(stack, self._valid_events(batch.rows.every_event().frame))
            facts = self._facts_of(events)
            if facts["moved_open"]:
                events = self._without_moved_open(events)
            found = self._look_up(events, rules, facts)
            combined = _persisted(stack, self._combined(events, found, rules, facts))
            count, lost, deletes = combined.agg(
                F.count(F.lit(1)), F.count_if(F.expr("open IS NOT NULL")), F.count_if(F.expr("op = 'd'"))
            ).collect()[0]
            if lost:
                # the other events of these keys are applied
                complete = self._without_incomplete(events, combined)
                combined = _persisted(stack, self._combined(complete, found, rules, facts))
                count, deletes = combined.count(), 1
            rows = Rows(self._counted(combined), folded=True, keys=count)
            rows = rows.with_frame(completed(table.spark, rows.frame, replace(batch, columns=columns), set()))
            if deletes or batch.commit.floor is not None:
                self._remember_deletes(rows, rules)
            feed.add(keys_merged=count)
            places = found.places if found is not None else None
            yield replace(batch, columns=columns, rows=rows, commit=replace(batch.commit, state=state, places=places))

    def _look_up(self, events: DataFrame, rules: Rules, facts: Row) -> LookedUp | None:
        """Return the table's rows of the events' keys; None if none of them counts."""
        table, batch, columns = self.feed.existing, self.batch, None
        if table.head() is None or batch.commit.replaces:
            return None
        if rules.is_first_row and not (facts["left_out"] or facts["deletes"]):
            # the values of a first row stay as they are, or an earlier row replaces them all
            columns = [ORDER_COLUMN, TIME_COLUMN, *rules.order_columns]
        return look_up(table, events.select("key.*").distinct(), batch.key, columns=columns)

    def _combined(self, events: DataFrame, found: LookedUp | None, rules: Rules, facts: Row) -> DataFrame:
        """Return the rows to write, and deletes to write or remember."""
        contributions = self._contributions(events, found, rules)
        removes = bool(facts["deletes"]) or self.has_late or bool(self.feed.waits)
        return merged(contributions, rules, left_out=facts["left_out"], removes=removes).where(self._changes(rules))

    def _valid_events(self, events: DataFrame) -> DataFrame:
        """Leave out events before a TRUNCATE, and late ones of keys that were erased."""
        batch, position = self.batch, self.feed.position
        events = with_late(without_void(events, batch.truncate_order))
        told = F.col("source_table") if "source_table" in events.columns else F.lit(None).cast("string")
        # rows and a database's log are of the target's only table
        only = None if batch.target.source_tables else F.lit(batch.target.source_name)
        events = events.withColumn("source_table", told if only is None else F.coalesce(told, only))
        if position is not None and position.truncate_order:
            events = events.where(f"NOT {void_sql('`order`', position.truncate_order)}")
        if batch.source.in_order or not self.mark:
            return events
        return without_erased(events, self.feed.existing, batch.key, self.mark)

    def _contributions(self, events: DataFrame, found: LookedUp | None, rules: Rules) -> DataFrame:
        """Return the contributions of events, and of the table's rows and remembered deletes, to the events' keys."""
        table, batch, deletes = self.feed.existing, self.batch, None
        remembered = None if batch.source.in_order and not self.feed.waits else tombstones.open_remembered(table)
        if remembered is not None and rules.merge.on_delete != "ignore":
            deletes = read_keys(remembered, events.select("key.*").distinct(), batch.key)
        stored = found.rows if found is not None else None
        return contributions_of(events, stored, deletes, rules, batch.truncate_order)

    def _changes(self, rules: Rules) -> Expression:
        """Return the condition that a key's row changes, or that its delete has to be remembered."""
        is_there = F.col("stored_order").isNotNull()
        has_events = (F.col("applied") > 0) | (F.col("deletes") > 0)
        if rules.is_first_row:
            is_same = (F.col("op") == "u") & (F.col("stored_order") == F.col("order")) & (F.col("deletes") == 0)
            has_events = has_events & ~F.coalesce(is_same, F.lit(False))
        forgets = F.lit(self.batch.source.in_order and not self.feed.waits)
        return has_events & ((F.col("op") != "d") | is_there | ~forgets)

    def _facts_of(self, events: DataFrame) -> Row:
        """Count events; refuse those of no source table where groups are of source tables."""
        untold = F.col("source_table").isNull()
        if self.batch.target.feed:
            named = [f".{group.source_table}" for group in self.merge.groups if group.source_table]
            ends = (F.concat(F.lit("."), "source_table").endswith(name) for name in named)
            untold = ~F.coalesce(reduce(or_, ends, F.lit(False)), F.lit(False))
        (facts,) = events.agg(
            F.array_distinct(F.flatten(F.collect_set(F.when(is_open(), F.col("open"))))).alias("left_out"),
            F.count_if(F.expr(_IS_MOVED_OPEN)).alias("moved_open"),
            F.count_if(F.col("op") == "d").alias("deletes"),
            F.count_if(untold).alias("of_no_table"),
        ).collect()
        if self.merge.by_source_table and facts["of_no_table"]:
            raise InputError(
                f"{facts['of_no_table']} events are of no source table, or of none that feeds a group of merge.",
                table=self.feed.name,
                hint="Use a format whose messages name their table, or groups with a sequence.",
            )
        return facts

    def _without_moved_open(self, events: DataFrame) -> DataFrame:
        """Quarantine changes of a key that leave values out, with the deletes of the old keys, whose rows stay."""
        moved = events.where(_IS_MOVED_OPEN)
        places = moved.select("key", "order").union(moved.select("old_key", "order")).localCheckpoint()
        self.keep_incomplete(self.batch, moved)
        return events.join(F.broadcast(places), ["key", "order"], "left_anti")

    def _without_incomplete(self, events: DataFrame, combined: DataFrame) -> DataFrame:
        """Quarantine the events that leave out values which nothing else has.

        What a full load has overtaken is void: its row was deleted before the load reached it.
        """
        keys = combined.where("open IS NOT NULL").select("key").localCheckpoint()
        incomplete = events.where(is_open()).join(keys, "key", "left_semi")
        overtaken = self.batch.source.overtaken_below
        waiting = (incomplete.where(F.col("order") >= overtaken) if overtaken else incomplete).localCheckpoint()
        if not waiting.isEmpty():
            self.keep_incomplete(self.batch, waiting)
        return events.join(incomplete.select("key", "order"), ["key", "order"], "left_anti")

    def _counted(self, rows: DataFrame) -> DataFrame:
        """Add the counts of events that tell, as for a fold, whether the table may have a row of the key."""
        # a TRUNCATE removes only rows with an order key
        is_new = F.lit(False) if self.batch.truncate_order else F.col("stored_order").isNull()
        inserts = F.when(is_new & (F.col("op") != "d"), 1).otherwise(0)
        # of a row that is there, whatever becomes of it
        deletes = F.when(~is_new, 2).otherwise(0)
        return rows.select("key", "op", "row", "order", "source_time", inserts.alias("n_c"), deletes.alias("n_d"))

    def _remember_deletes(self, rows: Rows, rules: Rules) -> None:
        """Remember deletes that a late event may follow, with the orders of their groups."""
        batch, table = self.batch, self.feed.existing
        if rules.merge.on_delete == "ignore":
            return
        if not batch.source.in_order:
            orders = [name for name in rules.order_columns if name != REMOVED_COLUMN]
            tombstones.append_deletes(table, rows.deletes, batch.key, orders=orders)
        elif self.feed.waits:
            remember_waited_for(self.feed, batch, rows)


def _persisted(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Persist a frame until the stack is closed."""
    stack.callback(frame.unpersist)
    return frame.persist()
