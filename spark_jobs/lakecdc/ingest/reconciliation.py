"""Select the folded rows to apply: not older than the table's, and complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest import tombstones
from lakecdc.ingest.cleaning import completed, opened, outside
from lakecdc.ingest.completion import complete, complete_from_table
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.stale import Compared, drop_stale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.change import Rows
    from lakecdc.ingest.fold import FoldStats
    from lakecdc.ingest.table_feed import TableFeed


@dataclass
class Reconciliation:
    """A folded batch compared with its table.

    :param batch: cleaned.
    :param measured: facts of the folded batch.
    :param mark: highest order key that the table has applied; None if it was never fed.
    :param mode: how the rows are written.
    :param keep_lost: quarantines rows that cannot be completed, given the batch, these rows and the number of events.
    """

    feed: TableFeed
    batch: Batch
    measured: FoldStats
    mark: str | None
    mode: str
    keep_lost: Callable[[Batch, DataFrame, int], None]

    def reconcile(self, folded: Rows) -> Rows:
        """Return the folded rows to apply: not older than the table's, without placeholders."""
        batch, measured, table = self.batch, self.measured, self.feed.existing
        rows, dropped = self._without_stale(folded)
        if measured.open_keys:
            rows = rows.with_frame(outside(table.spark, rows.frame, batch))
        if measured.open_keys or measured.filled_keys:
            rows = self._complete(rows)
        were_open = opened(folded.frame, batch) if measured.open_keys else set()
        rows = rows.with_frame(completed(table.spark, rows.frame, batch, were_open))
        if measured.events["d"] or (batch.target.clean and batch.target.clean.filter):
            if not batch.source.in_order:
                # dropped rows may include all deletes; a filter and an overtaken full load add some
                self._remember_deletes(rows, some=bool(measured.deletes) and not dropped)
            elif self.feed.waits:
                self._remember_waited_for(rows)
        return rows

    def _without_stale(self, folded: Rows) -> tuple[Rows, int]:
        """Drop rows that are older than the table's, and return their number too."""
        feed, batch, measured = self.feed, self.batch, self.measured
        truncated = feed.position.truncate_order if feed.position else None
        # a MERGE compares order keys itself; only rows to complete must not be older than the stored row
        rows = self.mode != "merge" or bool(measured.open_keys)
        compared = Compared(self.mark, measured.low_order, truncated, rows=rows, deletes=not batch.source.in_order)
        if not batch.may_be_held or not compared.may_be_newer:
            return folded, 0
        kept = drop_stale(folded.frame, feed.existing, batch.key, compared)
        feed.add(suspects=kept.suspects, older_dropped=kept.dropped)
        return folded.with_frame(kept.frame) if kept.dropped else folded, kept.dropped

    def _complete(self, rows: Rows) -> Rows:
        """Fill placeholders, from the table alone if the events cannot help."""
        batch, measured, table = self.batch, self.measured, self.feed.existing
        lookups, done = measured.open_keys, not measured.open_keys
        opened_rows = None if done else rows.for_table_alone(may_be_held=batch.may_be_held)
        if opened_rows is not None:
            filled, count = complete_from_table(opened_rows, batch, table)
            if done := count == lookups:
                rows = rows.with_completed(filled)
        if not done:
            whole, lookups, lost = complete(rows.frame, batch, table, self.mark, measured.first_order)
            rows = rows.with_frame(whole)
            if lost is not None:
                self.keep_lost(batch, lost, sum(measured.events.values()))
        self.feed.add(completions=measured.open_keys + measured.filled_keys, completion_lookups=lookups)
        return rows

    def _remember_deletes(self, rows: Rows, *, some: bool) -> None:
        """Remember deletes that a late event may follow; ``some``: there are some for certain."""
        # an upsert does so while it writes, if it knows of deletes without a Spark job
        if self.mode != "upsert" or rows.fold_stats is None:
            tombstones.remember(self.feed.existing, rows, self.batch.key, some=some)

    def _remember_waited_for(self, rows: Rows) -> None:
        """Remember deletes of rows with events in quarantine, whose replay comes late."""
        feed, key = self.feed, self.batch.key
        waiting = feed.waiting(feed.existing.spark)
        if waiting is None:
            return
        known = waiting.select(F.col("row_key").alias("waits"))
        gone = rows.deletes.join(known, row_key("key", key) == F.col("waits"), "left_semi")
        tombstones.append_deletes(feed.existing, gone, key)
