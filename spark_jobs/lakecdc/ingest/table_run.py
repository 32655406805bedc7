"""One batch into one table: quarantine, clean, prepare, reconcile, commit, in this order."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.iceberg.explain import explain
from lakecdc.ingest import dependents, quarantine, tables, truncate
from lakecdc.ingest.apply import events, modes
from lakecdc.ingest.apply.publish import FloorMovedError, following
from lakecdc.ingest.audit import Audit, AuditError
from lakecdc.ingest.batch import Batch, CommitPlan
from lakecdc.ingest.change import Rows
from lakecdc.ingest.cleaning import cleaned, set_apart
from lakecdc.ingest.erased import rows_returned
from lakecdc.ingest.floor import held_against
from lakecdc.ingest.fold import FoldStats, fold, stats, without_void
from lakecdc.ingest.misfits import with_misfits
from lakecdc.ingest.null_keys import null_key
from lakecdc.ingest.reconciliation import Reconciliation
from lakecdc.runtime.failpoints import reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.ingest.table_feed import TableFeed
    from lakecdc.metadata.positions import Position

log = logging.getLogger(__name__)


@dataclass
class TableRun:
    """What applies batches to one table.

    :param feed: the table's state, which it moves on.
    :ivar told: the batch that is being taken, as its source tells it, before any cleaning.
    """

    spark: SparkSession
    feed: TableFeed
    told: Batch | None = field(default=None, init=False)

    def apply(self, batch: Batch) -> None:
        """Take a batch into the table; events that it cannot take are set apart once one is met."""
        committed = self.feed.commits
        # events that a computed column cannot take hide those that the filter cannot
        for last in (False, False, True):
            try:
                self._take(batch)
                return
            except Exception as error:
                rest = None if last or self.feed.commits > committed else self._to_be_taken(batch, error)
                if rest is None:
                    if no_key := null_key(batch, error):
                        raise no_key from error
                    raise
                batch = rest

    def _to_be_taken(self, batch: Batch, error: Exception) -> Batch | None:
        """Return what of a batch that failed can be taken after all; None if nothing changes that."""
        feed = self.feed
        if not isinstance(error, FloorMovedError) or feed.table is None:
            return self._without_unclean(batch, error)
        log.info("%s: rows have expired or were erased meanwhile, the batch is held against what is left", feed.name)
        feed.table.refresh()
        if feed.history:
            feed.history.refresh()
        return batch

    def _without_unclean(self, batch: Batch, error: Exception) -> Batch | None:
        """Return a failed batch without the events that its cleaning cannot take; None if all can be."""
        found = set_apart(self.spark, batch) if explain(error) is not None else None
        if found is None:
            return None
        rest, misfits = found
        reason = F.concat(F.lit("an expression of clean cannot take a value: "), F.col("misfit"))
        return rest.with_rejected(quarantine.of_events(rest, misfits, quarantine.CLEAN_RULE, reason))

    def _take(self, batch: Batch) -> None:
        began, feed = time.monotonic(), self.feed
        audit = Audit.of(batch.target, show_values=feed.options.report_values)
        batch = self._without_dependents(replace(batch, commit=CommitPlan(replaces=feed.reloaded, audit=audit)))
        self.told = batch
        quarantine.check_share(batch, feed.options)
        batch = cleaned(self.spark, held_against(batch, feed.table))
        feed.metrics.update(batch.source.facts)
        truncate.check(batch)
        tables.check_source(feed.table, batch)
        if feed.table is None:
            events.check(batch)
        # nothing has told the columns yet, so there is nothing to make a table of
        untold = batch.rows is None and feed.table is None
        if feed.options.dry_run:
            if not untold:
                tables.check_columns(batch)
                self._count_only(batch)
            return
        if batch.full_load and feed.position is None:
            quarantine.forget_rows(self.spark, feed.spec.catalog.name, feed.quarantine_table, feed.name)
        self._keep_rejected(batch)
        batch = replace(batch, commit=replace(batch.commit, keep_misfits=partial(self._keep_misfits, batch)))
        batch = replace(batch, truncate_order=max(filter(None, (feed.truncated, batch.truncate_order)), default=None))
        if untold:
            feed.truncated = batch.truncate_order
            return
        quiet = batch.rows is None and feed.carrier is not None and not batch.truncate_order
        if not quiet or (feed.table is not None and tables.lacks_columns(feed.table, batch)):
            self._prepare(batch)
        if quiet:
            feed.note_quiet(batch.position)
            return
        try:
            self._commit(batch)
        finally:
            if batch.commit.audit is not None:
                feed.metrics["checks"] = [verdict.report() for verdict in batch.commit.audit.verdicts]
        if batch.commit.floor is not None:
            feed.add(rows_below_floor=batch.commit.floor.rows())
        feed.truncated = None
        feed.add(seconds=round(time.monotonic() - began, 3))

    def _without_dependents(self, batch: Batch) -> Batch:
        """Set apart what cannot be completed as long as messages before it are in quarantine."""
        feed = self.feed
        if batch.rows is None or batch.full_load or not batch.target.keyed:
            return batch
        waiting = None
        if feed.waits is not False:
            waiting = feed.waiting(self.spark)
            feed.waits = waiting is not None
        return dependents.set_apart(batch, feed.table, waiting)

    def _keep_rejected(self, batch: Batch) -> None:
        """Side table first: what cannot be applied is kept before the target moves on."""
        feed, catalog = self.feed, self.feed.spec.catalog.name
        name = feed.quarantine_table
        if batch.rejected is None:
            return
        kept = quarantine.create_quarantine(self.spark, catalog, name)
        feed.add(quarantined=quarantine.keep(kept, batch, feed.table, getattr(feed.spec.source, "format", None)))
        feed.metrics["quarantine_table"], feed.waits = name, True
        reach("after_quarantine")

    def _keep_misfits(self, batch: Batch, misfits: DataFrame, rows: int) -> None:
        """Keep rows of a full load whose values do not fit, which its reading has told."""
        assert self.told is not None
        found = with_misfits(self.told, misfits, rows)
        quarantine.check_share(found, self.feed.options)
        self._keep_rejected(replace(batch, rejected=found.rejected))
        self.feed.metrics.update(found.source.facts)

    def _keep_lost(self, batch: Batch, lost: DataFrame, events: int) -> None:
        """Keep rows that cannot be completed as well; the others go on."""
        assert self.told is not None
        found = quarantine.of_lost(replace(self.told, truncate_order=batch.truncate_order), lost)
        before = batch.rejected.count - batch.rejected.unreadable if batch.rejected else 0
        quarantine.check_share(batch.with_rejected(found), self.feed.options, events + before)
        self._keep_rejected(replace(batch, rejected=found))

    def _prepare(self, batch: Batch) -> None:
        """Create the table, or give it the columns that the batch has."""
        feed = self.feed
        feed.table, changes = tables.prepare(self.spark, feed.spec.catalog.name, feed.table, batch)
        if changes:
            feed.metrics.setdefault("schema_changes", []).extend(changes)

    def _commit(self, batch: Batch) -> None:
        feed = self.feed
        modes.check_debt(feed.existing, batch, self._most_delete_files)
        with self._kept(batch) as kept:
            if not kept.target.keyed:
                self._commit_events(kept)
                return
            # a TRUNCATE that the table does not apply is an event of its history all the same
            rows = truncate.marked(feed.existing, kept, feed.metrics)
            if feed.history is None:
                self._commit_rows(rows)
                return
            try:
                entering = replace(rows.commit, enter_history=partial(self._enter_history, kept))
                self._commit_rows(replace(rows, commit=entering))
            except AuditError as error:
                feed.history.tell_if_ahead(error)
                raise
            feed.history.taken(kept)

    @property
    def _most_delete_files(self) -> int:
        return self.feed.options.max_delete_files

    @contextmanager
    def _kept(self, batch: Batch) -> Iterator[Batch]:
        """Keep a batch's events while they are read more than once; a full load is too much to be kept."""
        read_once = batch.full_load or (batch.target.keyed and not self.feed.history)
        if batch.rows is None or read_once or batch.rows.every_event().is_kept:
            yield batch
            return
        changes = batch.rows.frame.persist()
        try:
            yield replace(batch, rows=batch.rows.with_frame(changes))
        finally:
            changes.unpersist()

    def _commit_rows(self, batch: Batch) -> None:
        feed = self.feed
        mark = feed.position.high_order if feed.position else None
        if batch.full_load or batch.rows is None:
            # a full load reads every key once: folding it would shuffle and store the whole table for nothing
            position = following(batch.position, feed.position, truncate_order=batch.truncate_order)
            self._write(batch, self._choose_mode(batch, mark), position)
            return
        with _measured(batch, batch.rows) as (folded, measured):
            feed.count_events(measured)
            position = following(
                batch.position, feed.position, measured.high_order, truncate_order=batch.truncate_order
            )
            mode = self._choose_mode(replace(batch, rows=folded), mark)
            rows = Reconciliation(feed, batch, measured, mark, mode, self._keep_lost).reconcile(folded)
            self._write(replace(batch, rows=rows), mode, position)

    def _choose_mode(self, batch: Batch, mark: str | None) -> str:
        feed = self.feed
        mode, choice = modes.choose(feed.existing, batch, self._most_delete_files, mark)
        feed.metrics.update(choice)
        return mode

    def _commit_events(self, batch: Batch) -> None:
        """Take a batch into a table that is only appended to."""
        feed = self.feed
        measured = None if batch.full_load else events.measure(batch)
        applied, position = events.append_events(feed.existing, batch, measured, feed.position, feed.started_from)
        if measured:
            feed.count_ops(measured.events)
        feed.note(applied, position)

    def _enter_history(self, batch: Batch) -> None:
        """Side table first: the batch's events go into the change log unless it holds them already."""
        feed = self.feed
        assert feed.history is not None
        applied = feed.history.append(batch, feed.existing, feed.carrier)
        if applied:
            feed.add(history_rows=applied.rows, history_data_files=applied.data_files, history_commits=1)

    def _write(self, batch: Batch, mode: str, position: Position) -> None:
        feed = self.feed
        started, before = feed.started_from, feed.existing.head()
        applied = modes.apply_rows(mode, feed.existing, batch, position, started)
        feed.note(applied, position)
        if batch.commit.erasure is not None:
            feed.add(erased_rows_returned=rows_returned(feed.existing, batch, applied.files, before))

    def _count_only(self, batch: Batch) -> None:
        if batch.rows is None or batch.full_load:
            return
        if batch.target.keyed:
            self.feed.count_events(stats(_folded(batch, batch.rows)))
        else:
            self.feed.count_ops(events.measure(batch).events)


@contextmanager
def _measured(batch: Batch, rows: Rows) -> Iterator[tuple[Rows, FoldStats]]:
    """Fold the rows of a batch and measure them, unless that is done already."""
    known = rows.fold_stats if batch.truncate_order == rows.void_below else None
    if known is not None:
        yield rows, known
        return
    folded = _folded(batch, rows).persist()
    try:
        measured = replace(stats(folded), filled_keys=rows.filled_keys if rows.folded else 0)
        yield Rows(folded, folded=True, keys=measured.keys), measured
    finally:
        folded.unpersist()


def _folded(batch: Batch, rows: Rows) -> DataFrame:
    return fold(without_void(rows.frame, batch.truncate_order))
