"""Ingest from a database's log: full load of each new table, then the log in rounds, the same for every server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Generic

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.engine.log import LogFold, LogRows
from lakecdc.ingest.engine.log_layout import LogLayout
from lakecdc.ingest.quarantine import with_misfits
from lakecdc.ingest.sources.database import check_identity, reloads
from lakecdc.ingest.sources.log.backlog import Backlog
from lakecdc.ingest.sources.log.feed import F
from lakecdc.ingest.sources.log.parking import Parked
from lakecdc.ingest.sources.log.rounds import LogEnd, Round, S
from lakecdc.ingest.sources.log.server import LoadPart, LogServer
from lakecdc.ingest.sources.message_batches import partition_transforms
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from lakecdc.model.positions import LogPosition, log_position
from lakecdc.runtime.failpoints import reach

_EARLIEST = datetime.fromtimestamp(0, UTC).isoformat()


class LogSource(Generic[F, S]):
    """The source of one run; see :class:`lakecdc.ingest.batch.IngestSource`.

    :ivar refused: tables that cannot be fed; tables are added when they cannot follow the log.
    :ivar given_up: tables whose log is no longer kept; they need a full load.
    """

    def __init__(self, spark: SparkSession, spec: JobSpec, server: LogServer[F, S]) -> None:
        self.spark, self.spec, self.server = spark, spec, server
        self._refused: dict[str, Exception] = {}
        self.refused: Mapping[str, Exception] = self._refused
        self._backlog: Backlog[F] = Backlog(spark, spec.catalog.name)
        self.given_up: Mapping[str, Exception] = self._backlog.given_up
        self.facts: Mapping[str, object] = {}
        self.feeds: dict[str, F] = {}
        # ends of interrupted batches, which a side table has already: a round must end there
        self._recorded: dict[str, Position] = {}
        self._round: Round[S] | None = None
        self._cached: list[DataFrame] = []
        self._identity = ""
        self._epoch = 1

    # -- start ------------------------------------------------------------------------------------------------

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Check everything, then note a place in the log and begin a snapshot for new tables."""
        self._identity = self.server.open()
        self._recorded = dict(recorded)
        with self.server.asking():
            self._start(positions)

    def _start(self, positions: Mapping[str, Position | None]) -> None:
        server = self.server
        for name, position in positions.items():
            if position is not None:
                check_identity(name, position, server.type, self._identity, server.place)
        known = [position for position in map(log_position, positions.values()) if position]
        self._epoch = max((position.epoch for position in known), default=1)
        targets = [target for target in self.spec.targets if target.table in positions]
        # rounds parked under a table's name belong to the job whose target has no feed
        own = {target.table: positions[target.table] for target in targets if not target.feed}
        parked, lost = self._backlog.load(own, self._identity)
        for number, target in enumerate(targets):
            name = target.table
            self._admit(number, target, positions[name], parked.get(name, []), lost.get(name))
        self._backlog.left_out |= server.prepare(positions, self.feeds, self._refuse)

    def _admit(
        self, number: int, target: Target, position: Position | None, parked: list[Parked], lost: LakecdcError | None
    ) -> None:
        """Admit a table, or refuse it without stopping the others."""
        name = target.table
        try:
            if lost:
                raise lost
            feed = self.server.describe(number, target, position, parked)
            twin = next((n for n, other in self.feeds.items() if other.table.label == feed.table.label), None)
            if twin:
                raise InputError(f"{feed.table.label} already feeds {twin}.", hint=self.server.twin_hint)
            self.feeds[name] = feed
            self.server.describe_columns(feed)
        except LakecdcError as error:
            self._stop(name, error, position)

    def _stop(self, name: str, error: LakecdcError, position: Position | None) -> None:
        """Stop applying batches of a table; park its log if it can be followed."""
        feed = self.feeds.get(name)
        if feed is None or feed.loading:
            self._refuse(name, error, position)
            return
        error.table = error.table or name
        self._refused[name] = error
        feed.failed = True

    def _refuse(self, name: str, error: LakecdcError, position: Position | None) -> None:
        """Refuse a table; the log is kept from its position on."""
        error.table = error.table or name
        self._refused[name] = error
        self.feeds.pop(name, None)
        if at := log_position(position):
            self._backlog.retained[name] = at.number

    # -- rounds -----------------------------------------------------------------------------------------------

    def rounds(self) -> Iterator[list[Batch]]:
        """Yield the new tables' full loads, part by part, then the log up to its current end.

        A round that repeats an interrupted batch ends where that batch did.
        """
        yield from self._loads()
        yield from self._parked_rounds()
        if not self._followed() and not self.spec.options.dry_run:
            # no table is left to read, but the log kept for refused tables is still bounded
            self.finish_round()
        reached, end = False, None
        while (followed := self._followed()) and not reached:
            with self.server.asking():
                end = end or self.server.log_end()
                stop = self._recorded_end(followed)
                self._round = log_round = self.server.read_log(followed, stop or end, repeated=stop is not None)
                reached = log_round.at_log_end
                facts = {**self._source_facts(log_round.end.time), **log_round.facts}
                live = self._live()
                batches = [b for feed in live for b in self._batch_or_stop(log_round, feed, feed.relation, facts)]
            yield batches

    def _recorded_end(self, followed: list[F]) -> LogEnd | None:
        """Return the lowest recorded end that its table has not reached yet."""
        ends = []
        for feed in followed:
            recorded = self._recorded.get(feed.table.target.table)
            at = log_position(recorded)
            if recorded and at and at.number > feed.reach:
                moment = datetime.fromisoformat(recorded.read_through or _EARLIEST)
                ends.append(LogEnd(at, moment))
        return min(ends, key=lambda end: (end.at.number, end.time), default=None)

    def _followed(self) -> list[F]:
        """Return the tables whose log is read, to be applied or parked."""
        return [feed for feed in self.feeds.values() if not feed.loading]

    def _live(self) -> list[F]:
        return [feed for feed in self._followed() if not feed.failed]

    def _parked_rounds(self) -> Iterator[list[Batch]]:
        while waiting := [feed for feed in self._live() if feed.parked]:
            batches = []
            for feed in waiting:
                parked = feed.parked[0]
                events = self._backlog.parking.events(feed.table.target.table, parked)
                with self.server.asking():
                    log_round = self.server.parked_round(parked, events)
                    facts = self._source_facts(parked.moment) | {"parked_rounds": len(feed.parked)}
                    batches += self._batch_or_stop(log_round, feed, parked.relation, facts)
            if batches:
                yield batches

    def _loads(self) -> Iterator[list[Batch]]:
        """Yield rounds with a part of every table that has parts left."""
        feeds = {name: feed for name, feed in self.feeds.items() if feed.loading}
        left = {name: self._load(feed) for name, feed in feeds.items()}
        while left:
            batches = []
            for name in [*left]:
                batch = None
                try:
                    with self.server.asking():
                        batch = None if feeds[name].failed else next(left[name], None)
                except LakecdcError as error:
                    self._refuse(name, error, feeds[name].position)
                if batch is None:
                    del left[name]
                else:
                    batches.append(batch)
            if batches:
                yield batches

    def _load(self, feed: F) -> Iterator[Batch]:
        target, dry_run = feed.table.target, self.spec.options.dry_run
        # a load in parts may read rows again: they need a key, and a change log would get them twice
        whole = dry_run or not target.keyed or bool(target.history_table) or reloads(self.spec, target)
        for part in self.server.load(feed, self._epoch, whole=whole):
            yield self._load_batch(feed, part)

    def _load_batch(self, feed: F, part: LoadPart) -> Batch:
        at, log_rows = replace(part.at, load=part.load, loaded=part.loaded), part.rows
        position = self._position(feed, feed.committed, at, None)
        batch = Batch(feed.table.target, feed.key, feed.columns, None, position)
        if log_rows is None:
            return batch
        self._cached += part.cached
        batch = replace(
            batch,
            rows=log_rows.rows,
            full_load=not part.again,
            source=SourceFacts(
                columns=feed.source_columns,
                unproven=self.server.unlogged,
                facts={"full_load_chunks": feed.chunks, **part.facts},
            ),
        )
        return with_misfits(batch, log_rows.misfits, log_rows.events)

    def _batch_or_stop(self, log_round: Round[S], feed: F, relation: int, facts: Mapping[str, Any]) -> list[Batch]:
        try:
            return [self._batch(log_round, feed, relation, facts)]
        except LakecdcError as error:
            self._stop(feed.table.target.table, error, feed.position)
            return []

    def _batch(self, log_round: Round[S], feed: F, relation: int, facts: Mapping[str, Any]) -> Batch:
        changes = self.server.take(log_round, feed, relation)
        truncate = log_round.summary.truncate(relation)
        truncate_order = order_key(self._epoch, *truncate[:2], time=truncate[2]) if truncate else None
        if feed.table.target.on_truncate == "apply":
            changes = replace(changes, layout=replace(changes.layout, void_below=truncate_order))
        layout, table = changes.layout, feed.table
        log_rows = self._fold(log_round, feed, relation, layout) if log_round.events(relation) else None
        batch = Batch(
            target=feed.table.target,
            key=layout.key,
            columns=layout.columns,
            rows=log_rows.rows if log_rows else None,
            position=self._position(feed, feed.committed, log_round.end.at, log_round.end.time),
            truncate_order=truncate_order,
            source=SourceFacts(
                overtaken_below=order_key(self._epoch, feed.ahead) if feed.ahead else None,
                columns=changes.source_columns,
                column_history=changes.column_history,
                unproven=self.server.unlogged
                if table.unique
                else f"the key ({', '.join(table.key)}) is not a primary key or NOT NULL and unique in {table.label}",
                facts={**facts, **changes.facts},
            ),
        )
        return with_misfits(batch, log_rows.misfits, log_rows.events) if log_rows else batch

    def _fold(self, log_round: Round[S], feed: F, relation: int, layout: LogLayout) -> LogRows:
        target = feed.table.target
        by = partition_transforms(self.server.target_table(target), target)
        cells, size = log_round.cells_of(relation), log_round.size(relation)
        return LogFold(cells, layout, size, target, by, self._epoch, self._cached).run()

    def _position(self, feed: F, before: LogPosition | None, at: LogPosition, moment: datetime | None) -> Position:
        """Return the position of a table, before at ``before``, that has the log up to a place."""
        at = replace(self.server.position_at(feed, before, at), load=at.load, loaded=at.loaded)
        offsets = replace(at, epoch=self._epoch, loaded=at.loaded or feed.ahead).encode()
        known = feed.position.read_through if feed.position else None
        read_through = moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None
        if known and read_through:
            read_through = max(known, read_through)
        return Position(self.server.type, self._identity, offsets, read_through, storage=feed.remembered)

    def _source_facts(self, moment: datetime) -> dict[str, Any]:
        return {"source_lag_seconds": round(max(0.0, (self.server.now() - moment).total_seconds()), 3)}

    # -- results of the job -----------------------------------------------------------------------------------

    def applied(self, table: str, position: Position) -> None:
        """Record that the table has committed ``position``."""
        feed = self.feeds[table]
        feed.position = position
        self._backlog.applied(table, feed)

    def failed(self, table: str, error: Exception) -> None:
        """Stop applying batches of the table, and park its log.

        An unfinished full load with a position retains the log; without a position, the load begins again.
        """
        feed = self.feeds[table]
        feed.failed = True
        if feed.position and feed.loading:
            self._backlog.retained[table] = feed.at

    def finish_round(self) -> None:
        """Let the source remove log that all tables have, and release the round's cached frames."""
        server, backlog = self.server, self._backlog
        if (log_round := self._round) is not None:
            end = log_round.end
            backlog.park(self.feeds, log_round, lambda feed: self._position(feed, feed.reached, end.at, end.time))
        reach("before_round_release")
        with server.asking():
            if server.max_lag_bytes and (backlog.behind(self.feeds) or backlog.left_out):
                backlog.give_up(self.feeds, server.log_end().at.number, server.max_lag_bytes)
            idle = backlog.given_up and not (self._followed() or backlog.retained_places)
            places = [server.log_end().at.number] if idle else []
        backlog.forget()
        followed = [feed.reach for feed in self._followed()]
        loading = [feed.at for feed in self.feeds.values() if feed.loading and feed.position]
        places += followed + loading + backlog.retained_places
        self._release_round()
        with server.asking():
            still = any(feed.loading and not feed.failed for feed in self.feeds.values())
            facts = server.release(min(places, default=None), min(followed, default=None), loading=still)
        self.facts = {**facts, **({"slot_held_for": sorted(backlog.left_out)} if backlog.left_out else {})}

    def _release_round(self) -> None:
        while self._cached:
            self._cached.pop().unpersist()
        if self._round:
            self._round.release()
            self._round = None

    def close(self) -> None:
        self._release_round()
        self.server.close()
