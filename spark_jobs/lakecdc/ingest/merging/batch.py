"""Merge a batch with its table's rows of the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import Merge
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.definition import source_types
from lakecdc.ingest import tombstones
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import completed
from lakecdc.ingest.engine.packed import PackedRows
from lakecdc.ingest.fold import is_open, with_late, without_void
from lakecdc.ingest.lookup import LookedUp, look_up
from lakecdc.ingest.merging.combine import Rules
from lakecdc.ingest.merging.contributions import Contributions, EventContributions, without_erased
from lakecdc.ingest.merging.tasks import EventFacts, Origin
from lakecdc.ingest.merging.truncate import refuse_unplaced_reads
from lakecdc.ingest.reconciliation import remember_waited_for, state_of
from lakecdc.ingest.table_feed import TableFeed
from lakecdc.model.merge_slots import REMOVED_COLUMN

_IS_MOVED_OPEN = "op != 'd' AND coalesce(size(open), 0) > 0 AND old_key IS NOT NULL"


@dataclass(frozen=True)
class Merging:
    """Merge the events of a batch with the rows of its table.

    :param batch: cleaned.
    :param mark: highest order key that the table has applied; None if it was never fed.
    :param has_late: the table may have a newer state than an event.
    :param events: number of the events.
    :param keep_incomplete: quarantines events that leave out values recorded nowhere else, given the batch and the
        events.
    """

    feed: TableFeed
    batch: Batch
    merge: Merge
    mark: str | None
    has_late: bool
    events: int
    keep_incomplete: Callable[[Batch, DataFrame], None]

    @contextmanager
    def merged(self) -> Iterator[Batch]:
        """Yield the batch with all columns of the table, and one merged row per key."""
        feed, batch, table = self.feed, self.batch, self.feed.existing
        assert batch.rows is not None
        columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
        rules, state = Rules(self.merge, columns, batch.key), state_of(table)
        contributions = Contributions(table, rules, self.events, self._origin)
        with ExitStack() as stack:
            events = self._valid_events()
            of_events = self._of_events(stack, contributions, events)
            if of_events.facts.moved_open:
                events = self._without_moved_open(events)
                of_events = self._of_events(stack, contributions, events)
            stored = self._look_up(contributions.keys_of(of_events), rules, of_events.facts)
            whole = self._combined(stack, contributions, of_events, stored)
            deletes = whole.facts.deletes
            if whole.facts.open:
                # the other events of these keys are applied
                complete = self._of_events(stack, contributions, self._without_incomplete(events, whole))
                whole, deletes = self._combined(stack, contributions, complete, stored), 1
            count = whole.keys
            merged = whole.with_frame(completed(table.spark, whole.frame, replace(batch, columns=columns), set()))
            if deletes or batch.commit.floor is not None:
                self._remember_deletes(merged, rules)
            feed.add(keys_merged=count)
            places = stored.places if stored is not None else None
            yield replace(batch, columns=columns, rows=merged, commit=replace(batch.commit, state=state, places=places))

    @property
    def _origin(self) -> Origin:
        target = self.batch.target
        feeding = tuple(group.source_table for group in self.merge.groups if group.source_table)
        # rows and a database's log are from the target's only table
        return Origin(target.only_source, feeding if target.feed else ())

    def _of_events(self, stack: ExitStack, contributions: Contributions, events: Rows) -> EventContributions:
        """Return the contributions of events; refuse events without a source table if groups need source tables."""
        of_events = contributions.of_events(events)
        stack.callback(of_events.frame.unpersist)
        if of_events.facts.of_no_table:
            raise InputError(
                f"{of_events.facts.of_no_table} events have no source table, or one that feeds no group of merge.",
                table=self.feed.name,
                hint="Only read events of the groups' source tables (source_tables), in a format that names tables.",
            )
        return of_events

    def _look_up(self, keys: DataFrame, rules: Rules, facts: EventFacts) -> LookedUp | None:
        """Return the table's rows of some keys; None if they are irrelevant."""
        table, batch, columns = self.feed.existing, self.batch, None
        if table.head() is None or batch.commit.replaces:
            return None
        if rules.is_first_row and not (facts.left_out or facts.deletes):
            # the values of a first row are unchanged, or an earlier row replaces all of them
            columns = [ORDER_COLUMN, TIME_COLUMN, *rules.order_columns]
        return look_up(table, keys, batch.key, columns=columns)

    def _combined(
        self, stack: ExitStack, contributions: Contributions, events: EventContributions, stored: LookedUp | None
    ) -> PackedRows:
        """Merge events with the table's rows and remembered deletes: rows to write, deletes to write or remember."""
        batch, forgets = self.batch, self.batch.source.in_order and not self.feed.waits
        together = [events.frame]
        if stored is not None:
            together.append(contributions.of_rows(stored, since=batch.truncate_order))
        remembered = None if forgets else tombstones.open_remembered(self.feed.existing)
        if remembered is not None and self.merge.on_delete != "ignore":
            deletes = look_up(remembered, contributions.keys_of(events), batch.key)
            together.append(contributions.of_rows(deletes, remembered=True))
        facts = events.facts
        merged = contributions.merged(
            together,
            facts.left_out,
            removes=bool(facts.deletes) or self.has_late or bool(self.feed.waits),
            forgets=forgets,
            truncates=bool(batch.truncate_order),
        )
        stack.callback(merged.release)
        return merged

    def _valid_events(self) -> Rows:
        """Remove events before a TRUNCATE, and late events of erased keys."""
        batch, position = self.batch, self.feed.position
        assert batch.rows is not None
        rows = batch.rows.every_event()
        events, lowest = with_late(rows.frame), rows.facts.low_order if isinstance(rows, PackedRows) else None
        for order in (batch.truncate_order, position.truncate_order if position else None):
            if order and (lowest is None or lowest < order):
                events = without_void(events, order)
                if self.feed.is_shared and not batch.commit.replaces:
                    refuse_unplaced_reads(events, order, self.feed.name)
        if self.has_late and self.mark:
            events = without_erased(events, self.feed.existing, batch.key, self.mark, batch.target.feed)
        return rows.with_frame(events)

    def _without_moved_open(self, events: Rows) -> Rows:
        """Quarantine key updates that leave values out, with the deletes of the old keys, whose rows stay."""
        moved = events.frame.where(_IS_MOVED_OPEN)
        places = moved.select("key", "order").union(moved.select("old_key", "order")).localCheckpoint()
        self.keep_incomplete(self.batch, moved)
        return events.with_frame(events.frame.join(F.broadcast(places), ["key", "order"], "left_anti"))

    def _without_incomplete(self, events: Rows, merged: PackedRows) -> Rows:
        """Quarantine the events that leave out values recorded nowhere else.

        Events overtaken by a full load are void: their row was deleted before the load read it.
        """
        keys = merged.frame.where("open IS NOT NULL").select("key").localCheckpoint()
        incomplete = events.frame.where(is_open()).join(keys, "key", "left_semi")
        overtaken = self.batch.source.overtaken_below
        waiting = (incomplete.where(F.col("order") >= overtaken) if overtaken else incomplete).localCheckpoint()
        if not waiting.isEmpty():
            self.keep_incomplete(self.batch, waiting)
        rest = events.frame.join(incomplete.select("key", "order"), ["key", "order"], "left_anti")
        return events.with_frame(rest)

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
