"""Postgres as a log server: slot and publication, full loads from a snapshot, rounds of the slot's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import exists
from lakecdc.ingest.change import Load
from lakecdc.ingest.engine.log_layout import LogLayout
from lakecdc.ingest.source_columns import key_numbers, remembered
from lakecdc.ingest.sources.database import (
    check_driver,
    deal,
    full_load_needed,
    load_rows,
    persist_load,
    split_misfits,
)
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.log.parking import Parked
from lakecdc.ingest.sources.log.rounds import LogEnd, Round
from lakecdc.ingest.sources.log.server import LoadPart, LogServer, Refuse, TableChanges
from lakecdc.ingest.sources.log.source import LogSource
from lakecdc.ingest.sources.postgres import log as wal
from lakecdc.ingest.sources.postgres import owners, slots, snapshot
from lakecdc.ingest.sources.postgres.catalog import column_numbers, list_tables, read_table, source_name, target_columns
from lakecdc.ingest.sources.postgres.checks import (
    TYPE,
    check_publication,
    check_same_table,
    check_slot,
    check_still_there,
)
from lakecdc.ingest.sources.postgres.connect import Session, address, asking, connect, one
from lakecdc.ingest.sources.postgres.feed import (
    Feed,
    described_numbers,
    key_names,
    names_now,
    settle_quiet_names,
    with_fill,
    without_new_names,
)
from lakecdc.ingest.sources.postgres.owners import Owner
from lakecdc.ingest.sources.postgres.reading import Bounds, LogTable, Summary
from lakecdc.ingest.sources.postgres.slots import Publication, Slot
from lakecdc.ingest.sources.postgres.snapshot import Part, Progress, parts
from lakecdc.ingest.sources.postgres.storage import StorageWatch
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import LogPosition, LsnPosition, lsn, lsn_text
from lakecdc.runtime.failpoints import reach

log = logging.getLogger(__name__)

_FLUSHED = "SELECT pg_current_wal_flush_lsn()::text"


class PostgresServer(LogServer[Feed, Summary]):
    """See :class:`lakecdc.ingest.sources.log.server.LogServer`."""

    type = TYPE
    twin_hint = "Feed it from a separate slot."
    summary = Summary

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, PostgresSource)
        self.source, self.where = spec.source, address(spec.source)
        super().__init__(spark, spec, self.where.place)
        self.asking = partial(asking, self.where)
        self.max_lag_bytes = self.source.max_slot_lag_bytes or 0
        self._snapshot: snapshot.Snapshot | None = None
        # messages of the last round; messages kept in the slot before the followed tables; mean size of an event
        self._messages = self._skipped = self._event_bytes = 0

    def open(self) -> str:
        self._session: Session = self._opened.enter_context(closing(connect(self.where)))
        with self.asking():
            slots.check_server(self._session)
            slots.lock(self._session, self.source.slot)
            self._types = TypeCatalog(self._session, self.source.infinity)
            return slots.identity(self._session)

    # -- start ------------------------------------------------------------------------------------------------

    def _exists(self, target: str) -> bool:
        try:
            return exists(self.spark, self.spec.catalog.name, target)
        except LakecdcError:
            return True

    def describe(self, number: int, target: Target, position: Position | None, parked: list[Parked]) -> Feed:
        check_still_there(self._session, self.source.slot, target, position)
        table = read_table(self._session, target)
        check_same_table(table, position)
        known = self.target_table(target) if position else None
        numbers = remembered(known, target.feed) if known else {}
        target_key = key_numbers(known, target.feed) if known and target.keyed else ()
        return Feed(table.oid, table, position, parked=parked, numbers=numbers, target_key=target_key)

    def describe_columns(self, feed: Feed) -> None:
        table, position = feed.table, feed.position
        feed.columns = target_columns(table.target, table.key, table.columns, self._types)
        feed.storage = StorageWatch(self._session, table, position.storage if position else None)

    def prepare(
        self, positions: Mapping[str, Position | None], feeds: Mapping[str, Feed], refuse: Refuse
    ) -> Mapping[str, int]:
        source, session, fed = self.source, self._session, any(positions.values())
        publication = Publication(session, self.where, source.publication_name)
        known = owners.read(session, publication.name)
        before, owner = known.get(source.slot), Owner.of(self.spec.catalog, self.spec.targets)
        owners.check(source.slot, publication.name, before, owner, self._exists)
        slot = slots.usable_slot(session, source.slot)
        check_slot(source, slot, fed)
        check_publication(publication.name, publication.check(), fed)
        self._refuse_unpublished(publication, feeds, refuse)
        left_out: Mapping[str, int] = {}
        if slot:
            self._refuse_gaps(slot, feeds, refuse)
            here = {".".join(source_name(target)) for target in self.spec.targets if target.table in positions}
            left_out = self._left_out(publication, slot, known, here)
        if self.spec.options.dry_run:
            return left_out
        if any(feed.loading for feed in feeds.values()):
            # publish first, so that the log has everything that the snapshot lacks
            publication.publish([feed.table for feed in feeds.values() if feed.position is None])
            reach("before_slot_creation")
            log.info("waiting for transactions that are open at the source, then taking a snapshot")
            self._snapshot = snapshot.take(self.where, source.slot, temporary=slot is not None)
            reach("after_slot_creation")
        owner = owner.joined(before, {".".join(name) for name in publication.tables()})
        owners.note(session, publication.name, source.slot, owner)
        return left_out

    def _left_out(
        self, publication: Publication, slot: Slot, known: Mapping[str, Owner], fed: set[str]
    ) -> Mapping[str, int]:
        """Return the slot's source tables that the run leaves out, and the place from which they need the log.

        :param known: the owners of the publication's slots.
        :param fed: the source tables of the run.
        """
        theirs = {name for of, other in known.items() if of != slot.name for name in other.targets}
        fed_before = known[slot.name].targets if slot.name in known else {}
        # a publication of another name may serve any slot
        listed = publication.listed() - theirs if publication.name == slot.name else set()
        published = {".".join(name) for name in publication.tables()}
        here = {target.table for target in self.spec.targets}
        left_out = {}
        for name in sorted((listed | fed_before.keys() & published) - fed):
            target = fed_before.get(name)
            # a dropped target is loaded in full if it is ever fed again
            if target is None or target in here or self._exists(target):
                left_out[name] = slot.confirmed
        if left_out:
            log.warning(
                "The slot %s does not advance because of %s, which this run leaves out. If they are no longer needed, "
                "run ALTER PUBLICATION %s DROP TABLE … at the source.",
                *(slot.name, ", ".join(left_out), publication.name),
            )
        return left_out

    def _refuse_unpublished(self, publication: Publication, feeds: Mapping[str, Feed], refuse: Refuse) -> None:
        published = publication.tables()
        for name, feed in [*feeds.items()]:
            table = feed.table
            missing = (table.schema, table.name) not in published
            try:
                if missing and feed.position:
                    raise full_load_needed(f"The publication {publication.name!r} lost {table.label}", name)
                if missing and not self.source.create:
                    raise InputError(
                        f"The publication {publication.name!r} lacks {table.label}, and source.create is false.",
                        hint=f"Run ALTER PUBLICATION {publication.name} ADD TABLE {table.label}.",
                    )
                publication.check_filters(table)
            except LakecdcError as error:
                refuse(name, error, feed.position)

    def _refuse_gaps(self, slot: Slot, feeds: Mapping[str, Feed], refuse: Refuse) -> None:
        (flushed,) = one(self._session, _FLUSHED)
        for name, feed in [*feeds.items()]:
            if feed.position is None:
                continue
            at = lsn_text(feed.reach)
            if slot.confirmed > feed.reach:
                what = f"The source no longer has the log between {at} and {lsn_text(slot.confirmed)}"
            elif feed.reach > lsn(flushed):
                what = f"The source's log ends at {flushed}, before the table's position {at}: the source was restored"
            else:
                continue
            # the slot is already past its position
            refuse(name, full_load_needed(what, name), None)

    # -- full load --------------------------------------------------------------------------------------------

    def load(self, feed: Feed, epoch: int, *, whole: bool) -> Iterator[LoadPart]:
        # a dry run must not create a slot
        exported = self._snapshot = self._snapshot or snapshot.export(self.where)
        size = 0 if whole else self.source.full_load_commit_bytes
        before = Progress(**feed.load) if feed.load else None
        for part in parts(self._session, feed.table, self.source.chunk_bytes, size, exported.xmin, before):
            load = self._planned(feed, part, exported, epoch)
            # rows merged into the table are read more than once
            persisted = persist_load(load.judged) if part.again else None
            # the log is applied from the first snapshot
            yield LoadPart(
                LsnPosition(feed.at or exported.lsn),
                asdict(part.after) if part.after else None,
                loaded=exported.lsn if exported.lsn > feed.at > 0 else 0,
                rows=split_misfits(*persisted) if persisted else load_rows(load),
                again=part.again,
                cached=persisted[:1] if persisted else (),
                facts=feed.table.facts,
            )

    def _planned(self, feed: Feed, part: Part, exported: snapshot.Snapshot, epoch: int) -> Load:
        feed.numbers = column_numbers(self._session, feed.table.oid)
        feed.chunks += len(part.chunks)
        rows = self._types.type_rows(feed.table, feed.columns)
        return exported.load(self.spark, deal(part.chunks, self.source.full_load_parallelism), rows, epoch)

    def _forget_snapshot(self) -> None:
        if self._snapshot:
            self._snapshot.close()
            self._snapshot = None

    # -- rounds -----------------------------------------------------------------------------------------------

    def log_end(self) -> LogEnd:
        end, clock = slots.log_end(self._session)
        return LogEnd(LsnPosition(end), clock)

    def now(self) -> datetime:
        return slots.now(self._session)

    def read_log(self, feeds: Sequence[Feed], end: LogEnd, *, repeated: bool) -> Round[Summary]:
        log_tables = {
            feed.relation: LogTable(
                feed.reach,
                feed.table.key,
                frozenset(feed.table.target.exclude_columns),
                (feed.numbers, feed.table.numbers),
            )
            for feed in feeds
        }
        source, most = self.source, self.source.max_batch_events
        if source.max_batch_bytes and self._event_bytes:
            # the server buffers all events before it sends the first
            most = min(most, max(1, source.max_batch_bytes // self._event_bytes))
        # messages read before come first again if a failed table keeps them in the slot
        limit = self._skipped + most
        bounds = Bounds(source.max_batch_bytes, source.max_batch_seconds)
        publication = wal.publication_list(source.publication_name)
        task = wal.ReadLog(self.where, bounds, source.slot, publication, end.at.number, limit, log_tables)
        summary, cells = rounds.read(self.spark, task, Summary)
        self._event_bytes, self._messages = summary.event_bytes, summary.messages
        if summary.cut or summary.messages >= limit:
            moment = datetime.fromtimestamp(summary.commit_micros / 1_000_000, UTC)
            return Round(summary, LogEnd(LsnPosition(summary.end_lsn), moment), cells)
        at = LsnPosition(max(summary.end_lsn, end.at.number))
        return Round(summary, LogEnd(at, end.time), cells, at_log_end=not repeated)

    def take(self, log_round: Round[Summary], feed: Feed, relation: int) -> TableChanges:
        summary, table, to = log_round.summary, feed.table, log_round.end.at.number
        relations = summary.relations_of(relation)
        if feed.storage:
            feed.storage.follow(to, bool(relations), summary.truncated_by(relation))
        numbers = described_numbers(self._session, feed, relations)
        key = key_names(feed, relations, numbers)
        if relations:
            feed.columns = target_columns(table.target, key, relations[-1].columns, self._types)
        columns = with_fill(self._session, feed, self._types)
        named = bool(relations) or settle_quiet_names(feed, to)
        if not named:
            columns = without_new_names(self._session, feed, columns)
        renamed: Mapping[int, Mapping[str, str]] = {}
        if log_round.events(relation):
            renamed = {r.version: names for r, names in zip(relations, names_now(numbers), strict=True)}
        feed.numbers = numbers[-1] if numbers else feed.numbers
        versions = [wal.version(each, key, self._types, renamed.get(each.version)) for each in relations]
        layout = LogLayout(tuple(versions), columns, key, self._types.texts, summary.end)
        # an update that leaves values out must not be filled from a row that the full load read later; a parked round
        # does not show which tables have such updates
        leaves_out = log_round.parked is not None or relation in summary.open
        return TableChanges(
            layout=replace(layout, folds=not (feed.ahead and leaves_out)),
            source_columns={c.name: feed.numbers.get(c.name) for c in columns} if named else None,
            facts=table.facts,
        )

    def position_at(self, feed: Feed, before: LogPosition | None, at: LogPosition) -> LogPosition:
        return LsnPosition(max(at.number, before.number if before else 0), feed.table.oid)

    def release(self, upto: int | None, followed: int | None, *, loading: bool) -> Mapping[str, Any]:
        if not loading:
            self._forget_snapshot()
        if upto is not None:
            moved = slots.advance(self._session, self.source.slot, upto)
            # messages kept in the slot before the followed tables are read again in the next round
            self._skipped = self._messages if followed is not None and moved < followed else 0
        self._messages = 0
        slot = slots.find_slot(self._session, self.source.slot)
        return {"slot_lag_bytes": slot.lag_bytes if slot else 0}

    def close(self) -> None:
        self._forget_snapshot()
        super().close()


def open_source(spark: SparkSession, spec: JobSpec) -> LogSource[Feed, Summary]:
    """Open the source of an ingest spec.

    :raises LakecdcError: the driver is missing, or the connection string or the password's reference cannot be used.
    """
    check_driver("psycopg[binary]")
    return LogSource(spark, spec, PostgresServer(spark, spec))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """List all tables of the database, ``schema.table``; a partitioned table counts, its partitions do not.

    :raises LakecdcError: the database cannot be reached.
    """
    assert isinstance(spec.source, PostgresSource)
    with connect(address(spec.source)) as session:
        return list_tables(session)
