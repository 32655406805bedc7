"""Which of a batch's folded rows are applied: not older than the table's, and whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest import tombstones, truncate
from lakecdc.ingest.apply.packed import untouched
from lakecdc.ingest.cleaning import completed, opened, outside
from lakecdc.ingest.completion import complete, complete_from_table
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.lookup import drop_older

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.change import TableBatch
    from lakecdc.ingest.fold import FoldStats
    from lakecdc.ingest.table_feed import TableFeed


@dataclass
class Reconciliation:
    """A folded batch held against what its table has.

    :param batch: the batch; its packed rows change where tasks complete them.
    :param measured: facts of the folded batch.
    :param mark: highest order key that the table has applied; None if it was never fed.
    :param mode: how the rows are written.
    :param keep_lost: keeps rows that cannot be completed, given the batch, these rows and the number of events.
    """

    feed: TableFeed
    batch: TableBatch
    measured: FoldStats
    mark: str | None
    mode: str
    keep_lost: Callable[[TableBatch, DataFrame, int], None]

    def reconcile(self, folded: DataFrame) -> tuple[TableBatch, DataFrame]:
        """Return the batch and the rows of it that are applied: not older than the table's, without placeholders.

        :param folded: the batch, one row per key.
        """
        batch, measured, table = self.batch, self.measured, self.feed.existing
        rows, dropped = self._without_older(folded)
        if measured.open_keys:
            rows = outside(table.spark, rows, batch)
        if measured.open_keys or measured.filled_keys:
            rows = self._complete(rows)
        were_open = opened(folded, self.batch) if measured.open_keys else set()
        rows = completed(table.spark, rows, self.batch, were_open)
        if measured.events["d"] or (batch.target.clean and batch.target.clean.filter):
            if not batch.in_order:
                # what was left out may have been all of them; a filter and an overtaken full load make more
                self._remember_deletes(rows, some=bool(measured.deletes) and not dropped)
            elif self.feed.waits:
                self._remember_waited_for(rows)
        return self.batch, rows

    def _without_older(self, rows: DataFrame) -> tuple[DataFrame, int]:
        """Drop rows that are older than the table's, or than a delete or TRUNCATE; count them."""
        feed, batch, mark, lowest = self.feed, self.batch, self.mark, self.measured.low_order
        if not (batch.may_be_held and mark and lowest and lowest <= mark):
            return rows, 0
        suspects = older = deleted = 0
        truncated = feed.position.truncate_order if feed.position else None
        # a MERGE judges the order by itself; only what is to be completed must not be older than the stored row
        if self.mode != "merge" or self.measured.open_keys:
            rows, suspects, older = drop_older(rows, feed.existing, batch.key, mark)
        if not batch.in_order:
            rows, deleted = tombstones.drop_deleted(feed.existing, rows, batch.key, mark, truncated)
        if truncated and lowest < truncated:
            rows, gone = truncate.drop_emptied(rows, truncated)
            deleted += gone
        feed.add(suspects=suspects, older_dropped=older + deleted)
        return rows, older + deleted

    def _complete(self, rows: DataFrame) -> DataFrame:
        """Fill placeholders. Where tasks hold the batch packed, only rows that have some leave it."""
        batch, measured, table = self.batch, self.measured, self.feed.existing
        packed, lookups, done = untouched(batch, rows), measured.open_keys, not measured.open_keys
        if packed is not None and packed.folded and not done and (packed.is_new or not batch.may_be_held):
            found, count = complete_from_table(packed.opened, batch, table)
            if done := count == lookups:
                packed = packed.with_completed(found)
                self.batch, rows = replace(batch, changes=packed.changes, packed=packed), packed.changes
        if not done:
            rows, lookups, lost = complete(rows, batch, table, self.mark, measured.first_order)
            if lost is not None:
                self.keep_lost(batch, lost, sum(measured.events.values()))
        self.feed.add(completions=measured.open_keys + measured.filled_keys, completion_lookups=lookups)
        return rows

    def _remember_deletes(self, rows: DataFrame, *, some: bool) -> None:
        """Remember the deletes of a batch that a late event may follow.

        :param some: there are some, so that nobody need look.
        """
        table, key, packed = self.feed.existing, self.batch.key, untouched(self.batch, rows)
        if packed is None:
            tombstones.remember(table, rows, key, some=some)
        elif self.mode != "upsert":
            # an upsert does so while it writes
            tombstones.remember_packed(table, packed, key)

    def _remember_waited_for(self, rows: DataFrame) -> None:
        """Remember deletes of rows of which events wait in the quarantine: a replay of these comes late."""
        feed, key = self.feed, self.batch.key
        waiting = feed.waiting(feed.existing.spark)
        if waiting is None:
            return
        packed = untouched(self.batch, rows)
        gone = rows if packed is None else packed.deletes
        known = waiting.select(F.col("row_key").alias("waits"))
        gone = gone.join(known, row_key("key", key) == F.col("waits"), "left_semi")
        tombstones.remember(feed.existing, gone, key)
