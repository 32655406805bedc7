"""Apply one batch to one table: quarantine, clean, prepare, reconcile, commit, in this order."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.merging import Merge
from lakecdc.iceberg.explain import explain
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest import dependents, quarantine, tables
from lakecdc.ingest.apply import events, full_load, modes
from lakecdc.ingest.apply.publish import StateMovedError, following
from lakecdc.ingest.audit import Audit, AuditError
from lakecdc.ingest.batch import Batch, CommitPlan, Rejected
from lakecdc.ingest.change import Rows
from lakecdc.ingest.cleaning import cleaned, set_apart
from lakecdc.ingest.completion import past_of
from lakecdc.ingest.erased import count_returned_rows
from lakecdc.ingest.floor import held_against
from lakecdc.ingest.fold import Stats, fold, measure_folded, without_void
from lakecdc.ingest.formats.changes import row_key
from lakecdc.ingest.merging.batch import Merging
from lakecdc.ingest.merging.truncate import emptied_groups, with_groups_emptied
from lakecdc.ingest.reconciliation import Reconciliation
from lakecdc.ingest.table_feed import TableFeed
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position, beside_others
from lakecdc.model.order import time_of
from lakecdc.runtime.failpoints import reach
from lakecdc.sql import quoted_column
from lakecdc.writer.parquet import MISSING_VALUE

log = logging.getLogger(__name__)

# errors of Spark and the writer for a null
_NULL_REFUSALS = ("NOT_NULL_ASSERT_VIOLATION", MISSING_VALUE)
_TIMES = ("date", "timestamp")


@dataclass
class TableRun:
    """Apply batches to one table and update its state; ``uncleaned`` is the current batch before cleaning."""

    spark: SparkSession
    feed: TableFeed
    uncleaned: Batch | None = field(default=None, init=False)

    def apply(self, batch: Batch) -> None:
        """Apply a batch; if an expression of its cleaning fails, quarantine the events that it fails for."""
        committed, batch = self.feed.commits, _of_feed(self.feed, batch)
        # events that fail a computed column hide events that fail the filter
        for last in (False, False, True):
            try:
                self._apply(batch)
                return
            except Exception as error:
                rest = None if last or self.feed.commits > committed else self._recoverable_part(batch, error)
                if rest is None:
                    if no_key := _null_key(batch, error):
                        raise no_key from error
                    raise
                batch = rest

    def _recoverable_part(self, batch: Batch, error: Exception) -> Batch | None:
        """Return the part of a failed batch that can still be applied, or None if it would fail again."""
        feed = self.feed
        if not isinstance(error, ConflictError) or feed.table is None:
            return self._without_unclean(batch, error)
        if not (feed.follow_others() or isinstance(error, StateMovedError)):
            return None
        log.info("%s: rows changed meanwhile, the batch is compared again", feed.name)
        if feed.history:
            feed.history.refresh()
        # another job's first commit may be among them
        return _of_feed(feed, batch)

    def _without_unclean(self, batch: Batch, error: Exception) -> Batch | None:
        """Return a failed batch without the events that fail its cleaning; None if none does."""
        parts = set_apart(self.spark, batch) if explain(error) is not None else None
        if parts is None:
            return None
        rest, misfits = parts
        reason = F.concat(F.lit("an expression of clean fails for a value: "), F.col("misfit"))
        return rest.with_rejected(quarantine.of_events(rest, misfits, quarantine.CLEAN_RULE, reason))

    def _apply(self, batch: Batch) -> None:
        began, feed = time.monotonic(), self.feed
        audit = Audit.of(batch.target, show_values=feed.options.report_values)
        batch = self._without_dependents(replace(batch, commit=CommitPlan(replaces=feed.reloaded, audit=audit)))
        self.uncleaned = batch
        quarantine.check_share(batch, feed.options)
        batch = cleaned(self.spark, held_against(batch, feed.table))
        feed.metrics.update(batch.source.facts)
        _check_truncate(batch, shared=feed.is_shared)
        tables.check_source(feed.table, batch)
        if feed.table is None:
            events.check(batch)
        # no column is known yet, so the table cannot be created
        schema_unknown = batch.rows is None and feed.table is None
        if feed.options.dry_run:
            if not schema_unknown:
                tables.check_columns(batch)
                self._count_only(batch)
            return
        if batch.full_load and feed.position is None:
            quarantine.forget_rows(self.spark, feed.spec.catalog.name, feed.quarantine_table, feed.name)
        self._keep_rejected(batch)
        batch = replace(batch, commit=replace(batch.commit, keep_misfits=partial(self._keep_misfits, batch)))
        batch = replace(batch, truncate_order=max(filter(None, (feed.truncated, batch.truncate_order)), default=None))
        if schema_unknown:
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
        """Quarantine updates that cannot be completed while earlier messages are in quarantine."""
        feed = self.feed
        if batch.rows is None or batch.full_load or not batch.target.keyed:
            return batch
        waiting = None
        if feed.waits is not False:
            waiting = feed.waiting(self.spark)
            feed.waits = waiting is not None
        return dependents.set_apart(batch, feed.table, waiting)

    def _keep_rejected(self, batch: Batch) -> None:
        """Quarantine rejected messages, before the target is committed."""
        feed, name = self.feed, self.feed.quarantine_table
        if batch.rejected is None:
            return
        table = quarantine.create_quarantine(self.spark, feed.spec.catalog.name, name)
        feed.add(quarantined=quarantine.keep(table, batch, feed.table, getattr(feed.spec.source, "format", None)))
        feed.metrics["quarantine_table"], feed.waits = name, True
        reach("after_quarantine")

    def _keep_misfits(self, batch: Batch, misfits: DataFrame, rows: int) -> None:
        """Quarantine rows of a full load whose values do not fit."""
        assert self.uncleaned is not None
        judged = quarantine.with_misfits(self.uncleaned, misfits, rows)
        quarantine.check_share(judged, self.feed.options)
        self._keep_rejected(replace(batch, rejected=judged.rejected))
        self.feed.metrics.update(judged.source.facts)

    def _keep_lost(self, batch: Batch, lost: DataFrame, events: int) -> None:
        """Quarantine rows that cannot be completed."""
        assert self.uncleaned is not None
        uncleaned = replace(self.uncleaned, truncate_order=batch.truncate_order)
        rejected = quarantine.of_incomplete(uncleaned, past_of(uncleaned, lost))
        before = batch.rejected.count - batch.rejected.unreadable if batch.rejected else 0
        self._keep_late_rejected(batch, rejected, events + before)

    def _keep_incomplete(self, batch: Batch, incomplete: DataFrame) -> None:
        """Quarantine events that leave out values which neither the table nor other events have."""
        assert self.uncleaned is not None and self.uncleaned.rows is not None
        places = incomplete.select(row_key("key", batch.key).alias("place"), "order")
        events = self.uncleaned.rows.every_event().frame
        uncleaned = events.withColumn("place", row_key("key", self.uncleaned.key))
        uncleaned = uncleaned.join(places, ["place", "order"], "left_semi").select(*events.columns).localCheckpoint()
        self._keep_late_rejected(batch, quarantine.of_incomplete(self.uncleaned, uncleaned))

    def _keep_late_rejected(self, batch: Batch, rejected: Rejected, events: int | None = None) -> None:
        """Quarantine messages rejected after the batch's others; ``events`` is the number of all events."""
        quarantine.check_share(batch.with_rejected(rejected), self.feed.options, events)
        self._keep_rejected(replace(batch, rejected=rejected))

    def _prepare(self, batch: Batch) -> None:
        """Create the table, or add the batch's new columns."""
        feed = self.feed
        feed.table, changes = tables.prepare(self.spark, feed.spec.catalog.name, feed.table, batch)
        if changes:
            feed.metrics.setdefault("schema_changes", []).extend(changes)

    def _commit(self, batch: Batch) -> None:
        feed = self.feed
        modes.check_debt(feed.existing, batch, feed.options.max_delete_files)
        with self._persisted(batch) as persisted:
            if not persisted.target.keyed:
                self._commit_events(persisted)
                return
            # a TRUNCATE that the table does not apply is still an event of its history
            rows = _without_marked_truncate(feed.existing, persisted, feed.metrics)
            if feed.history is None:
                self._commit_rows(rows)
                return
            try:
                entering = replace(rows.commit, enter_history=partial(self._enter_history, persisted))
                self._commit_rows(replace(rows, commit=entering))
            except AuditError as error:
                feed.history.raise_if_ahead(error)
                raise
            feed.history.note_commit(persisted)

    @contextmanager
    def _persisted(self, batch: Batch) -> Iterator[Batch]:
        """Persist a batch's events if they are read more than once; a full load is too large for that."""
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
        merge, has_rows = batch.target.merge, batch.rows is not None or (feed.is_shared and batch.truncate_order)
        if merge is not None and has_rows and not batch.full_load:
            self._commit_merged(batch, merge, mark)
            return
        if batch.full_load or batch.rows is None:
            # a full load has every key once: folding it would shuffle and store the whole table needlessly
            position = following(batch.position, feed.position, truncate_order=batch.truncate_order)
            self._write(batch, self._choose_mode(batch, mark), position)
            return
        with _measured(batch, batch.rows) as (folded, measured):
            feed.count_events(measured)
            position = following(
                batch.position, feed.position, measured.high_order, truncate_order=batch.truncate_order
            )
            mode = self._choose_mode(replace(batch, rows=folded), mark)
            reconciliation = Reconciliation(feed, batch, measured, mark, mode, self._keep_lost)
            rows, first_order = reconciliation.reconcile(folded), measured.first_order
            state, places = reconciliation.state, reconciliation.places
            plan = replace(batch.commit, first_order=first_order, state=state, places=places)
            self._write(replace(batch, rows=rows, commit=plan), mode, position)

    def _commit_merged(self, batch: Batch, merge: Merge, mark: str | None) -> None:
        """Commit the rows merged from events and the table's rows by the rules of the target."""
        feed, measured = self.feed, events.measure(batch)
        position = following(batch.position, feed.position, measured.high_order, truncate_order=batch.truncate_order)
        low = measured.low_order
        has_late = bool(low and mark and low <= mark) and not batch.source.in_order
        count = sum(measured.events.values())
        if feed.is_shared and batch.truncate_order and not batch.commit.replaces:
            batch, deletes = with_groups_emptied(feed.existing, batch)
            count += deletes
        with Merging(feed, batch, merge, mark, has_late, count, self._keep_incomplete).merged() as whole:
            full_load.keep_misfits(batch)
            self._write(whole, self._choose_mode(whole, mark), position)
        feed.count_ops(measured.events)

    def _choose_mode(self, batch: Batch, mark: str | None) -> str:
        feed = self.feed
        mode, choice = modes.choose(feed.existing, batch, feed.options.max_delete_files, mark)
        feed.metrics.update(choice)
        return mode

    def _commit_events(self, batch: Batch) -> None:
        """Commit a batch to an append-only table."""
        feed = self.feed
        measured = None if batch.full_load else events.measure(batch)
        applied, position = events.append_events(feed.existing, batch, measured, feed.position, feed.started_from)
        if measured:
            feed.count_ops(measured.events)
        feed.note(applied, position)

    def _enter_history(self, batch: Batch) -> None:
        """Add the batch's events to the change log, unless it has them."""
        feed = self.feed
        assert feed.history is not None
        applied = feed.history.append(batch, feed.existing, feed.carrier)
        if applied:
            feed.add(history_rows=applied.rows, history_data_files=applied.data_files, history_commits=1)

    def _write(self, batch: Batch, mode: str, position: Position) -> None:
        feed = self.feed
        position = beside_others(position, feed.target.feed, feed.newest, feed.existing.properties)
        started, before = feed.started_from, feed.existing.head()
        applied = modes.apply_rows(mode, feed.existing, batch, position, started)
        feed.note(applied, position)
        if batch.commit.erasure is not None:
            feed.add(erased_rows_returned=count_returned_rows(feed.existing, batch, applied.staged.data_files, before))

    def _count_only(self, batch: Batch) -> None:
        if batch.rows is None or batch.full_load:
            return
        if batch.target.keyed:
            self.feed.count_events(measure_folded(_folded(batch, batch.rows)))
        else:
            self.feed.count_ops(events.measure(batch).events)


@contextmanager
def _measured(batch: Batch, rows: Rows) -> Iterator[tuple[Rows, Stats]]:
    """Fold the rows of a batch and measure them, unless tasks have done so."""
    known = rows.stats
    if known is not None and rows.folded and batch.truncate_order == rows.void_below:
        yield rows, known
        return
    folded = _folded(batch, rows).persist()
    try:
        measured = measure_folded(folded)
        first_order = measured.first_order or (known.first_order if known else None)
        measured = replace(measured, first_order=first_order, filled_keys=rows.filled_keys if rows.folded else 0)
        yield Rows(folded, folded=True, keys=measured.keys), measured
    finally:
        folded.unpersist()


def _folded(batch: Batch, rows: Rows) -> DataFrame:
    return fold(without_void(rows.frame, batch.truncate_order))


def _null_key(batch: Batch, error: Exception) -> InputError | None:
    """Return the error of the key column whose missing value made a batch fail; None for another reason."""
    cause = explain(error)
    is_null = cause is not None and any(refusal in cause.text for refusal in _NULL_REFUSALS)
    if cause is None or not is_null or batch.rows is None or not batch.key:
        return None
    if MISSING_VALUE in cause.text and not any(f"column {name!r} " in cause.text for name in batch.key):
        return None
    rows = batch.rows.frame.where("op != 'd' AND row IS NOT NULL")
    missing = rows.select(*[F.col("row")[name].isNull().alias(name) for name in batch.key])
    row = missing.where(" OR ".join(map(quoted_column, batch.key))).first()
    columns = [name for name in batch.key if row is None or row[name]]
    types = {column.name: column.type for column in batch.columns}
    hint = 'Fill it at the source, or set "key" in the target to columns without nulls.'
    if any(types.get(name, "").startswith(_TIMES) for name in columns):
        hint += f' An invalid date is null too; "columns": {{"{columns[0]}": "string"}} keeps its text.'
    return InputError(
        f"The key column {' or '.join(map(repr, columns))} has no value in a row of the source, so the row cannot be "
        "identified. Nothing was written.",
        table=batch.target.table,
        hint=hint,
    )


def _of_feed(feed: TableFeed, batch: Batch) -> Batch:
    """Return a batch for a table that other jobs feed too.

    Its full load is merged with their rows, and its order relative to their events is arbitrary.
    """
    if not feed.is_shared:
        return batch
    return replace(batch, full_load=False, source=replace(batch.source, in_order=False))


def _check_truncate(batch: Batch, *, shared: bool) -> None:
    """Raise an InputError if the policy is ``stop``, or if rows of other source tables would be removed."""
    order, policy = batch.truncate_order, batch.target.on_truncate
    if not order:
        return
    if policy == "stop":
        raise InputError(
            f"The source table was truncated at {_moment(order)}, and on_truncate is 'stop'.",
            table=batch.target.table,
            hint="Set on_truncate of the target to 'apply' to empty the table too, or to 'mark' to keep its rows.",
        )
    others = batch.target.keyed and (batch.target.source_tables or shared)
    if policy == "apply" and others and not (shared and emptied_groups(batch.target)):
        raise InputError(
            f"One of the source tables that share this table was truncated at {_moment(order)}; applied here, it would "
            "remove the rows of the others too.",
            table=batch.target.table,
            hint="Set on_truncate of the target to 'mark', then delete that source table's rows by hand.",
        )


def _without_marked_truncate(table: IcebergTable, batch: Batch, metrics: dict[str, Any]) -> Batch:
    """Return the batch without its TRUNCATE if the policy is ``mark``, which only records its time."""
    if not batch.truncate_order or batch.target.on_truncate != "mark":
        return batch
    moment = _moment(batch.truncate_order)
    metrics["truncate_marked"] = moment
    table.update_properties({names.TRUNCATED: moment})
    return replace(batch, truncate_order=None)


def _moment(order: str) -> str:
    return datetime.fromtimestamp(time_of(order) / 1000, UTC).isoformat()
