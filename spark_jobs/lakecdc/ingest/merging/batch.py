"""Merge a batch with the rows that its table has of the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.merging import Merge
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.definition import source_types
from lakecdc.ingest import tombstones
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import completed
from lakecdc.ingest.erased import erased_keys
from lakecdc.ingest.fold import fold, is_suspect, with_late, without_void
from lakecdc.ingest.lookup import read_keys
from lakecdc.ingest.merging.combine import Rules, combine, contributions_of_events, contributions_of_rows
from lakecdc.ingest.reconciliation import remember_waited_for, state_of
from lakecdc.ingest.table_feed import TableFeed
from lakecdc.model.merge_slots import REMOVED_COLUMN
from lakecdc.model.order import void_sql
from lakecdc.sql import quoted_column


@dataclass(frozen=True)
class Merging:
    """A batch of every event, and the table that it is merged with.

    :param batch: cleaned.
    :param mark: highest order key that the table has applied; None if it was never fed.
    :param keep_lost: quarantines rows that cannot be completed, given the batch, these rows and the number of events.
    """

    feed: TableFeed
    batch: Batch
    merge: Merge
    mark: str | None
    keep_lost: Callable[[Batch, DataFrame, int], None]

    @contextmanager
    def merged(self) -> Iterator[Batch]:
        """Yield the batch with all columns of the table, and with one row per key as the table should have it."""
        feed, batch, table = self.feed, self.batch, self.feed.existing
        assert batch.rows is not None
        columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
        rules, state = Rules(self.merge, columns, batch.key), state_of(table)
        events = self._valid_events(batch.rows.every_event().frame).persist()
        try:
            combined = combine(self._contributions(events, rules), rules).where(self._changes(rules)).persist()
            try:
                count, lost, deletes = combined.agg(
                    F.count(F.lit(1)), F.count_if(F.expr("open IS NOT NULL")), F.count_if(F.expr("op = 'd'"))
                ).collect()[0]
                if lost:
                    self._quarantine_lost(combined, events)
                whole = combined.where("open IS NULL") if lost else combined
                rows = Rows(_counted(whole), folded=True, keys=count - lost)
                rows = rows.with_frame(completed(table.spark, rows.frame, replace(batch, columns=columns), set()))
                if deletes:
                    self._remember_deletes(rows, rules)
                feed.add(keys_merged=rows.keys)
                yield replace(batch, columns=columns, rows=rows, commit=replace(batch.commit, state=state))
            finally:
                combined.unpersist()
        finally:
            events.unpersist()

    def _valid_events(self, events: DataFrame) -> DataFrame:
        """Leave out events before a TRUNCATE, and late ones of keys that were erased."""
        batch, position = self.batch, self.feed.position
        events = with_late(without_void(events, batch.truncate_order))
        if position is not None and position.truncate_order:
            events = events.where(f"NOT {void_sql('`order`', position.truncate_order)}")
        if batch.source.in_order or not self.mark:
            return events
        suspects = events.where(is_suspect(self.mark)).select("key", "order")
        erased = erased_keys(self.feed.existing, suspects, batch.key)
        if erased is None:
            return events
        void = F.broadcast(erased.distinct().withColumn("erased", F.lit(True)))
        return events.join(void, "key", "left").where(~(is_suspect(self.mark) & F.col("erased").isNotNull()))

    def _contributions(self, events: DataFrame, rules: Rules) -> DataFrame:
        """Return what events, the table's rows and its remembered deletes say of the keys of the events."""
        table, batch = self.feed.existing, self.batch
        contributions = contributions_of_events(events, rules)
        keys = events.select("key.*").distinct()
        if table.head() is not None and not batch.commit.replaces:
            stored = read_keys(table, keys, batch.key)
            if batch.truncate_order:
                stored = stored.where(F.coalesce(ORDER_COLUMN, F.lit("")) >= batch.truncate_order)
            if rules.is_first_row:
                # the values of a first row stay as they are, or an earlier row replaces them all
                own = (ORDER_COLUMN, TIME_COLUMN, *rules.order_columns)
                stored = stored.select(*map(quoted_column, (*batch.key, *own)))
            contributions = contributions.unionByName(contributions_of_rows(stored, rules))
        remembered = None if batch.source.in_order and not self.feed.waits else tombstones.open_remembered(table)
        if remembered is not None and rules.merge.on_delete != "ignore":
            deletes = read_keys(remembered, keys, batch.key)
            contributions = contributions.unionByName(contributions_of_rows(deletes, rules, remembered=True))
        return contributions

    def _changes(self, rules: Rules) -> Expression:
        """Return the condition that a key's row changes, or that its delete has to be remembered."""
        is_there = F.col("stored_order").isNotNull()
        said = (F.col("applied") > 0) | (F.col("deletes") > 0)
        if rules.is_first_row:
            said = said & ~F.coalesce((F.col("op") == "u") & (F.col("stored_order") == F.col("order")), F.lit(False))
        forgets = F.lit(self.batch.source.in_order and not self.feed.waits)
        return said & ((F.col("op") != "d") | is_there | ~forgets)

    def _quarantine_lost(self, combined: DataFrame, events: DataFrame) -> None:
        """Quarantine the events of keys for which nothing tells a value that the source left out."""
        lost = combined.where("open IS NOT NULL").select("key").localCheckpoint()
        self.keep_lost(self.batch, fold(events).join(lost, "key", "left_semi"), events.count())

    def _remember_deletes(self, rows: Rows, rules: Rules) -> None:
        """Remember deletes that a late event may follow, with the orders of their groups."""
        batch, table = self.batch, self.feed.existing
        if rules.merge.on_delete == "ignore":
            return
        if not batch.source.in_order:
            orders = [name for name in rules.order_columns if name != REMOVED_COLUMN]
            tombstones.append_deletes(table, rows.deletes, batch.key, some=True, orders=orders)
        elif self.feed.waits:
            remember_waited_for(self.feed, batch, rows)


def _counted(rows: DataFrame) -> DataFrame:
    """Add the counts of events that tell, as for a fold, whether the table has a row of the key."""
    is_new, is_delete = F.col("stored_order").isNull(), F.col("op") == "d"
    inserts = F.when(is_new & ~is_delete, 1).otherwise(0)
    deletes = F.when(~is_new & is_delete, 1).otherwise(0)
    return rows.select("key", "op", "row", "order", "source_time", inserts.alias("n_c"), deletes.alias("n_d"))
