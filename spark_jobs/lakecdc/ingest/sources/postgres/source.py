"""Postgres as an ingest source: full load of each new table, then the log in rounds, and the life of the slot."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.iceberg.table import exists
from lakecdc.ingest.change import Column, TableBatch
from lakecdc.ingest.formats.native import Native
from lakecdc.ingest.formats.native.log import refusal
from lakecdc.ingest.order import order_key
from lakecdc.ingest.source_columns import key_numbers, remembered
from lakecdc.ingest.sources import rounds
from lakecdc.ingest.sources.database import deal, full_load_needed, reloads, rounds_of_parts
from lakecdc.ingest.sources.message_batches import partition_transforms
from lakecdc.ingest.sources.postgres import log as wal
from lakecdc.ingest.sources.postgres import owners, slots, snapshot
from lakecdc.ingest.sources.postgres.backlog import Backlog
from lakecdc.ingest.sources.postgres.catalog import column_numbers, read_table, source_name, target_columns
from lakecdc.ingest.sources.postgres.connect import address, asking, connect, lsn, lsn_text
from lakecdc.ingest.sources.postgres.feed import (
    Feed,
    described_numbers,
    key_names,
    names_now,
    settle_quiet_names,
    with_fill,
    without_new_names,
)
from lakecdc.ingest.sources.postgres.load import Part, Progress, parts
from lakecdc.ingest.sources.postgres.owners import Owner
from lakecdc.ingest.sources.postgres.parking import Parked
from lakecdc.ingest.sources.postgres.pgoutput import Bounds, Wanted
from lakecdc.ingest.sources.postgres.slots import Publication, Slot
from lakecdc.ingest.sources.postgres.start_checks import (
    TYPE,
    check_position,
    check_publication,
    check_same_table,
    check_slot,
    check_still_there,
)
from lakecdc.ingest.sources.postgres.storage import StorageWatch
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.ingest.tables import open_target
from lakecdc.metadata.positions import Position
from lakecdc.runtime.failpoints import reach

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 1.0


@dataclass
class End:
    """Where a run ends.

    :param time: the source's clock just before.
    """

    lsn: int
    time: datetime


@dataclass
class PostgresIngest:
    """The source of one run; see :class:`lakecdc.ingest.change.IngestSource`.

    :param refused: tables that cannot be fed, by name of their target. It grows during the rounds when the log brings
        a column that has no type.
    :param given_up: tables whose position the slot has passed; they need a full load.
    """

    spark: SparkSession
    spec: JobSpec
    refused: Mapping[str, Exception] = field(default_factory=dict)
    given_up: Mapping[str, Exception] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert isinstance(self.spec.source, PostgresSource)
        self.source: PostgresSource = self.spec.source
        self._where = address(self.source)
        self._refused: dict[str, Exception] = {}
        self.refused = self._refused
        self._backlog = Backlog(self.spark, self.spec.catalog.name)
        self.given_up = self._backlog.given_up
        self._feeds: dict[str, Feed] = {}
        # where an interrupted run has left a table's side tables: a round has to end there
        self._recorded: dict[str, Position] = {}
        self._round: wal.Round | None = None
        self._packed: list[DataFrame] = []
        self._round_end = End(0, _moment(0))
        self._snapshot: snapshot.Snapshot | None = None
        self._session_or_none: psycopg.Connection[tuple[Any, ...]] | None = None
        self._identity = ""
        self._skipped = 0
        # the mean of the last round
        self._event_bytes = 0

    # -- start ------------------------------------------------------------------------------------------------

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Check everything, then make publication, slot and snapshot as far as they are missing."""
        self._session_or_none = connect(self._where)
        self._recorded = dict(recorded)
        with self._asking():
            self._start(positions)

    def _start(self, positions: Mapping[str, Position | None]) -> None:
        slots.check_server(self._session)
        slots.lock(self._session, self.source.slot)
        self._identity = slots.identity(self._session)
        self._types = TypeCatalog(self._session, self.source.infinity)
        for name, position in positions.items():
            if position is not None:
                check_position(name, position, self._identity, self._where.place)
        targets = [target for target in self.spec.targets if target.table in positions]
        owner = Owner.of(self.spec.catalog, self.spec.targets)
        known = owners.read(self._session, self.source.publication_name)
        owners.check(self.source.slot, self.source.publication_name, known.get(self.source.slot), owner, self._exists)
        parked, lost = self._backlog.load(positions, self._identity)
        for target in targets:
            self._admit(target, positions[target.table], parked.get(target.table, []), lost.get(target.table))
        slot = slots.usable_slot(self._session, self.source.slot)
        check_slot(self.source, slot, any(positions.values()))
        self._epoch = max((int(p.offsets.get("epoch", 1)) for p in positions.values() if p), default=1)
        publication = Publication(self._session, self._where, self.source.publication_name)
        self._check_publication(publication, any(positions.values()))
        if slot:
            self._check_gaps(slot)
            self._hold_for_others(publication, slot, {".".join(source_name(target)) for target in targets}, known)
        if any(feed.loading for feed in self._feeds.values()) and not self.spec.options.dry_run:
            self._prepare_load(publication, slot)
        if not self.spec.options.dry_run:
            owner = owner.joined(known.get(self.source.slot), {".".join(name) for name in publication.tables()})
            owners.note(self._session, publication.name, self.source.slot, owner)

    def _exists(self, target: str) -> bool:
        try:
            return exists(self.spark, self.spec.catalog.name, target)
        except LakecdcError:
            return True

    def _hold_for_others(self, publication: Publication, slot: Slot, fed: set[str], known: Mapping[str, Owner]) -> None:
        """Keep the log for source tables of this slot that take no part in the run.

        :param fed: those that do.
        :param known: the owners of the publication's slots.
        """
        theirs = {name for of, other in known.items() if of != slot.name for name in other.targets}
        fed_before = known[slot.name].targets if slot.name in known else {}
        # a publication of another name may serve whomever
        listed = publication.listed() - theirs if publication.name == slot.name else set()
        published = {".".join(name) for name in publication.tables()}
        here = {target.table for target in self.spec.targets}
        for name in sorted((listed | fed_before.keys() & published) - fed):
            target = fed_before.get(name)
            # one that was dropped is loaded in full if it ever comes back
            if target is None or target in here or self._exists(target):
                self._backlog.left_out[name] = slot.confirmed
        if self._backlog.left_out:
            log.warning(
                "The slot %s stays where it is for %s, which this run leaves out. If nobody wants them any more, run "
                "ALTER PUBLICATION %s DROP TABLE … at the source.",
                *(slot.name, ", ".join(self._backlog.left_out), publication.name),
            )

    def _admit(
        self, target: Target, position: Position | None, parked: list[Parked], lost: LakecdcError | None
    ) -> None:
        """Take a table in, or refuse it without stopping the others.

        :param lost: why it is not known what is parked.
        """
        name = target.table
        try:
            if lost:
                raise lost
            check_still_there(self._session, self.source.slot, target, position)
            table = read_table(self._session, target)
            twin = next((n for n, feed in self._feeds.items() if feed.table.oid == table.oid), None)
            if twin:
                raise InputError(f"{table.label} already feeds {twin}.", hint="Give it a slot of its own.")
            check_same_table(table, position)
            known = open_target(self.spark, self.spec.catalog.name, name) if position else None
            numbers = remembered(known) if known else {}
            target_key = key_numbers(known, target) if known and target.keyed else ()
            feed = self._feeds[name] = Feed(table, (), position, numbers, target_key, parked=parked)
            feed.columns = target_columns(target, table.key, table.columns, self._types)
            feed.storage = StorageWatch(self._session, table, position.storage if position else None)
        except LakecdcError as error:
            self._stop(name, error, position)

    def _stop(self, name: str, error: LakecdcError, position: Position | None) -> None:
        """Take no more batches of a table; if its log can be followed, that is parked."""
        feed = self._feeds.get(name)
        if feed is None or feed.loading:
            self._refuse(name, error, position)
            return
        error.table = error.table or name
        self._refused[name] = error
        feed.failed = True

    def _refuse(self, name: str, error: LakecdcError, position: Position | None) -> None:
        """Leave a table alone; its position holds the slot."""
        error.table = error.table or name
        self._refused[name] = error
        self._feeds.pop(name, None)
        if position:
            self._backlog.held[name] = lsn(position.offsets["lsn"])

    def _check_publication(self, publication: Publication, fed: bool) -> None:
        check_publication(publication.name, publication.check(), fed)
        published = publication.tables()
        for feed in [*self._feeds.values()]:
            table = feed.table
            missing = (table.schema, table.name) not in published
            try:
                if missing and feed.position:
                    raise full_load_needed(
                        f"The publication {publication.name!r} lost {table.label}", table.target.table
                    )
                if missing and not self.source.create:
                    raise InputError(
                        f"The publication {publication.name!r} lacks {table.label}, and source.create is false.",
                        hint=f"Run ALTER PUBLICATION {publication.name} ADD TABLE {table.label}.",
                    )
                publication.check_filters(table)
            except LakecdcError as error:
                self._refuse(table.target.table, error, feed.position)

    def _check_gaps(self, slot: Slot) -> None:
        row = self._session.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        for name, feed in [*self._feeds.items()]:
            if feed.position is None:
                continue
            at = lsn_text(feed.reach)
            if slot.confirmed > feed.reach:
                what = f"The log between {at} and {lsn_text(slot.confirmed)} is gone"
            elif feed.reach > lsn(row[0]):
                what = f"The source's log ends at {row[0]}, before the table's position {at}: the source was restored"
            else:
                continue
            # its position is passed already, it cannot hold the slot any more
            self._refuse(name, full_load_needed(what, name), None)

    def _prepare_load(self, publication: Publication, slot: Slot | None) -> None:
        """Publish the new tables first and take the snapshot then: the log has all that the snapshot does not show."""
        publication.publish([feed.table for feed in self._feeds.values() if feed.position is None])
        reach("before_slot_creation")
        log.info("waiting for transactions that are open at the source, then taking a snapshot")
        self._snapshot = snapshot.take(self._where, self.source.slot, temporary=slot is not None)
        reach("after_slot_creation")

    # -- rounds -----------------------------------------------------------------------------------------------

    def rounds(self) -> Iterator[list[TableBatch]]:
        """First the new tables' full load, part by part, then the log up to where it ended at that moment.

        A batch that was interrupted is repeated first: a round ends where it did.
        """
        yield from self._loads()
        yield from self._parked_rounds()
        if not self._followed() and not self.spec.options.dry_run:
            # no table is left to be read, but what the refused ones keep is still bounded
            self.finish_round()
        reached, end = False, None
        while self._followed() and not reached:
            with self._asking():
                end = end or self._end()
                stop = self._recorded_end()
                found, whole = self._read(stop or end)
                batches = self._batches(found, stop or end, whole)
                reached = whole and stop is None
            yield batches

    def _recorded_end(self) -> End | None:
        """The nearest recorded end that its table has not reached yet."""
        ends = []
        for feed in self._followed():
            recorded = self._recorded.get(feed.table.target.table)
            if recorded and lsn(recorded.offsets["lsn"]) > feed.reach:
                moment = recorded.read_through or _moment(0).isoformat()
                ends.append((lsn(recorded.offsets["lsn"]), datetime.fromisoformat(moment)))
        return End(*min(ends)) if ends else None

    def _followed(self) -> list[Feed]:
        """Tables whose log is read: to be applied, or to be parked."""
        return [feed for feed in self._feeds.values() if not feed.loading]

    def _live(self) -> list[Feed]:
        return [feed for feed in self._followed() if not feed.failed]

    def _parked_rounds(self) -> Iterator[list[TableBatch]]:
        """What was parked comes before the log."""
        while waiting := [feed for feed in self._live() if feed.parked]:
            batches = []
            for feed in waiting:
                name, parked = feed.table.target.table, feed.parked[0]
                found = self._backlog.round(name, parked)
                with self._asking():
                    facts = self._source_facts(parked.moment) | {"parked_rounds": len(feed.parked)}
                    batches += self._batch_or_stop(found, feed, parked.through, parked.moment, facts)
            if batches:
                yield batches

    def _loads(self) -> Iterator[list[TableBatch]]:
        """Rounds with a part of every table that has parts left."""
        feeds = {name: feed for name, feed in self._feeds.items() if feed.loading}
        with self._asking():
            loads = {name: map(partial(self._load, feed), self._parts(feed)) for name, feed in feeds.items()}

        def refuse(name: str, error: LakecdcError) -> None:
            self._refuse(name, error, feeds[name].position)

        return rounds_of_parts(loads, lambda name: feeds[name].failed, refuse, self._asking)

    def _parts(self, feed: Feed) -> Iterator[Part]:
        if self._snapshot is None:
            # a dry run must not make a slot
            self._snapshot = snapshot.export(self._where)
        target, source = feed.table.target, self.source
        # rows that are read again must find those that are there, and a change log would have them twice
        whole = self.spec.options.dry_run or not target.keyed or target.history_table or reloads(self.spec, target)
        before = Progress.of(feed.position.offsets) if feed.position else None
        size = 0 if whole else source.full_load_commit_bytes
        return parts(self._session, feed.table, source.chunk_bytes, size, self._snapshot.xmin, before)

    def _load(self, feed: Feed, part: Part) -> TableBatch:
        taken, table, found = self._snapshot, feed.table, part.chunks
        assert taken is not None
        shares = deal(found, self.source.full_load_parallelism)
        names = tuple(column.name for column in feed.columns)
        copy = snapshot.CopyChunks(self._where, taken.name, shares, names)
        values = self._types.values(table.columns, feed.columns)
        feed.numbers = column_numbers(self._session, table.oid)
        feed.chunks += len(found)
        odd = self._types.odd_for_arrow(table.columns, feed.columns)
        rows = snapshot.rows(self.spark, copy, table, feed.columns, values, taken, self._epoch, odd)
        return TableBatch(
            target=table.target,
            key=table.key,
            columns=feed.columns,
            changes=rows.changes,
            position=self._loaded(feed, taken, part),
            full_load=not part.again,
            arrow_rows=None if part.again else rows,
            judged=rows.judged,
            source_columns={c.name: feed.numbers.get(c.name) for c in feed.columns},
            facts={"full_load_chunks": feed.chunks, **table.facts},
        )

    def _loaded(self, feed: Feed, taken: snapshot.Snapshot, part: Part) -> Position:
        """Where a table stands after a part of its load: the log is applied from the first snapshot on."""
        position = self._position(feed, feed.at or taken.lsn, None)
        more: dict[str, Any] = {"loaded": lsn_text(taken.lsn)} if taken.lsn > feed.at > 0 else {}
        more |= {"load": part.after.encode()} if part.after else {}
        return replace(position, offsets={**position.offsets, **more})

    def _end(self) -> End:
        """The log's end now. What was acknowledged before the clock was read must have reached the disk."""
        statement = "SELECT clock_timestamp(), pg_current_wal_insert_lsn()::text"
        row = self._session.execute(statement).fetchone()
        assert row is not None
        written, deadline = lsn(row[1]), time.monotonic() + _FLUSH_SECONDS
        while True:
            flushed = self._session.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert flushed is not None
            # commits with synchronous_commit = off arrive within three times wal_writer_delay
            if lsn(flushed[0]) >= written or time.monotonic() > deadline:
                return End(lsn(flushed[0]), row[0])
            time.sleep(0.02)

    def _read(self, end: End) -> tuple[wal.Round, bool]:
        """A round, and whether it has come to the end."""
        wanted = {
            feed.table.oid: Wanted(
                feed.reach,
                feed.table.key,
                frozenset(feed.table.target.exclude_columns),
                (feed.numbers, feed.table.numbers),
            )
            for feed in self._followed()
        }
        # messages that this run has read before and that a failed table keeps in the slot come first again
        limit = self._skipped + wal.events_at_once(self.source, self._event_bytes)
        bounds = Bounds(self.source.max_batch_bytes, self.source.max_batch_seconds)
        publication = wal.publication_list(self.source.publication_name)
        task = wal.ReadLog(self._where, self.source.slot, publication, end.lsn, limit, wanted, bounds)
        self._round = found = wal.read(self.spark, task)
        self._event_bytes = found.summary.event_bytes
        return found, not found.summary.cut and found.summary.messages < limit

    def _batches(self, found: wal.Round, end: End, reached: bool) -> list[TableBatch]:
        summary = found.summary
        to = max(summary.end_lsn, end.lsn) if reached else summary.end_lsn
        moment = end.time if reached else _moment(summary.commit_micros)
        self._round_end, facts = End(to, moment), self._source_facts(moment)
        return [batch for feed in self._live() for batch in self._batch_or_stop(found, feed, to, moment, facts)]

    def _batch_or_stop(
        self, found: wal.Round, feed: Feed, to: int, moment: datetime, facts: Mapping[str, Any]
    ) -> list[TableBatch]:
        try:
            return [self._batch(found, feed, to, moment, facts)]
        except LakecdcError as error:
            self._stop(feed.table.target.table, error, feed.position)
            return []

    def _batch(self, found: wal.Round, feed: Feed, to: int, moment: datetime, facts: Mapping[str, Any]) -> TableBatch:
        table, events = feed.table, found.summary.events.get(feed.table.oid)
        relations = found.relations(table.oid)
        if feed.storage:
            feed.storage.follow(to, bool(relations), found.truncated_by(table.oid))
        numbers = described_numbers(self._session, feed, relations)
        key = key_names(feed, relations, numbers)
        if relations:
            feed.columns = target_columns(table.target, key, relations[-1].columns, self._types)
        columns, made = with_fill(self.spark, self._session, feed, self._types), Native()
        named = bool(relations) or settle_quiet_names(feed, to)
        if not named:
            columns = without_new_names(self._session, feed, columns)
        if events:
            renamed = {r.version: names for r, names in zip(relations, names_now(numbers), strict=True)}
            made = self._made(found, feed, key, columns, renamed)
            facts = {**facts, "decoded_by": f"jvm: {made.reason}" if made.reason else "native"}
        feed.numbers = numbers[-1] if numbers else feed.numbers
        batch = TableBatch(
            target=table.target,
            key=key,
            columns=columns,
            changes=made.changes,
            position=self._position(feed, to, moment),
            folded=made.folded,
            packed=made.packed,
            every_event=made.every_event,
            truncate_order=wal.truncate_order(found, table.oid, self._epoch),
            overtaken_below=order_key(self._epoch, feed.ahead) if feed.ahead else None,
            source_columns={c.name: feed.numbers.get(c.name) for c in columns} if named else None,
            facts={**facts, **table.facts},
        )
        return rounds.repeatable(batch, made)

    def _made(
        self,
        found: wal.Round,
        feed: Feed,
        key: tuple[str, ...],
        columns: tuple[Column, ...],
        renamed: Mapping[int, Mapping[str, str]],
    ) -> Native:
        """The changes of a table: folded by the native engine's tasks, or for the JVM to fold, and why."""
        oid, target = feed.table.oid, feed.table.target
        layout = refusal(self.spec.options, target) or wal.layout(
            found, oid, key, columns, self._types, renamed, overtaken=bool(feed.ahead)
        )
        by = partition_transforms(open_target(self.spark, self.spec.catalog.name, target.table), target)
        made = rounds.folded(found.cells, oid, layout, found.size(oid), target, by, self._epoch)
        changes = partial(wal.changes, found, oid, key, columns, self._types, self._epoch, renamed)
        self._packed += made.kept
        return rounds.with_changes(made, changes)

    def _position(self, feed: Feed, to: int, moment: datetime | None) -> Position:
        """A table that was ahead of the others stays where it is."""
        before = feed.position
        read_through = moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None
        if before and before.read_through and read_through:
            read_through = max(before.read_through, read_through)
        offsets = {"lsn": lsn_text(max(to, feed.at)), "epoch": self._epoch, "oid": feed.table.oid}
        if feed.ahead > to:
            offsets["loaded"] = lsn_text(feed.ahead)
        storage = feed.storage.encode() if feed.storage else None
        return Position(TYPE, self._identity, offsets, read_through, storage=storage)

    def _source_facts(self, moment: datetime) -> dict[str, Any]:
        row = self._session.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        return {"source_lag_seconds": round(max(0.0, (row[0] - moment).total_seconds()), 3)}

    # -- what the job tells -----------------------------------------------------------------------------------

    def applied(self, table: str, position: Position) -> None:
        """The table stands at ``position`` now, committed."""
        feed = self._feeds[table]
        feed.position = position
        self._backlog.applied(table, feed)

    def failed(self, table: str, error: Exception) -> None:
        """The table takes no more batches: what the log has for it is parked.

        One whose full load has not ended holds the slot, unless it has no position: then the load begins again.
        """
        feed = self._feeds[table]
        feed.failed = True
        if feed.position and feed.loading:
            self._backlog.held[table] = feed.at

    def finish_round(self) -> None:
        """Let the source go of the log that every table has, and the cluster of the round."""
        self._end_load()
        backlog, end = self._backlog, self._round_end
        if self._round is not None:
            backlog.park(self._feeds, self._round, end.lsn, end.time, self._identity)
        reach("before_slot_advance")
        with self._asking():
            if self.source.max_slot_lag_bytes and (backlog.behind(self._feeds) or backlog.left_out):
                backlog.give_up(self._feeds, self._end().lsn, self.source.max_slot_lag_bytes)
            gone = [self._end().lsn] if backlog.given_up and not (self._followed() or backlog.kept) else []
        backlog.forget()
        followed = [feed.reach for feed in self._followed()]
        loading = [feed.at for feed in self._feeds.values() if feed.loading and feed.position]
        places = gone + followed + loading + backlog.kept
        messages = self._round.summary.messages if self._round else 0
        self._release_round()
        if places:
            with self._asking():
                moved = slots.advance(self._session, self.source.slot, min(places))
            # whatever the slot keeps before the tables that are followed is read again in the next round
            self._skipped = messages if followed and moved < min(followed) else 0
        with self._asking():
            slot = slots.find_slot(self._session, self.source.slot)
        held = {"slot_held_for": sorted(backlog.left_out)} if backlog.left_out else {}
        self.facts = {"slot_lag_bytes": slot.lag_bytes if slot else 0, **held}

    def _end_load(self) -> None:
        if self._snapshot and all(feed.failed or not feed.loading for feed in self._feeds.values()):
            self._snapshot.close()
            self._snapshot = None

    def _release_round(self) -> None:
        while self._packed:
            self._packed.pop().unpersist()
        if self._round:
            self._round.release()
            self._round = None

    def close(self) -> None:
        """Release sessions, lock and disk."""
        self._release_round()
        if self._snapshot:
            self._snapshot.close()
            self._snapshot = None
        if self._session_or_none:
            self._session_or_none.close()
            self._session_or_none = None

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self._where)

    @property
    def _session(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._session_or_none is None:
            raise SourceUnavailableError("The source is not open.")
        return self._session_or_none


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)
