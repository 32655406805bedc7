"""MySQL and MariaDB as an ingest source: full load of each new table, then the log in rounds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.ingest.change import ArrowRows, Column, TableBatch
from lakecdc.ingest.formats.native import Native
from lakecdc.ingest.formats.native.log import LogLayout, refusal
from lakecdc.ingest.order import RANK_READ, order_key
from lakecdc.ingest.sources import rounds
from lakecdc.ingest.sources.database import LoadMark, deal, full_load_needed, loaded, reloads, rounds_of_parts
from lakecdc.ingest.sources.message_batches import partition_transforms
from lakecdc.ingest.sources.mysql import log as binlog
from lakecdc.ingest.sources.mysql import server as servers
from lakecdc.ingest.sources.mysql import snapshot
from lakecdc.ingest.sources.mysql.arrow_values import odd_for_arrow
from lakecdc.ingest.sources.mysql.catalog import bases, read_table
from lakecdc.ingest.sources.mysql.columns import checked_fills, with_fills
from lakecdc.ingest.sources.mysql.connect import Address, address, asking, connect
from lakecdc.ingest.sources.mysql.decoder import Limits, Relation, Wanted
from lakecdc.ingest.sources.mysql.feed import Feed
from lakecdc.ingest.sources.mysql.gtid import merged_gtid
from lakecdc.ingest.sources.mysql.load import Part, parts
from lakecdc.ingest.sources.mysql.place import Place, place_of
from lakecdc.ingest.sources.mysql.start_checks import TYPE, check_identity, check_place
from lakecdc.ingest.tables import open_target
from lakecdc.metadata.positions import Position
from lakecdc.runtime.failpoints import reach

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.mysql.connect import Session

log = logging.getLogger(__name__)

_NO_LIMIT = 1 << 62


@dataclass
class MysqlIngest:
    """The source of one run; see :class:`lakecdc.ingest.change.IngestSource`.

    :param refused: tables that cannot be fed, by name of their target. It grows when the log tells of something that
        only a full load can mend.
    :param given_up: stays empty: this source keeps nothing for a table.
    """

    spark: SparkSession
    spec: JobSpec
    refused: Mapping[str, Exception] = field(default_factory=dict)
    given_up: Mapping[str, Exception] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert isinstance(self.spec.source, MysqlSource)
        self.source: MysqlSource = self.spec.source
        self._where: Address = address(self.source)
        self._refused: dict[str, Exception] = {}
        self.refused = self._refused
        self._feeds: dict[str, Feed] = {}
        self._round: binlog.Round | None = None
        self._kept: list[DataFrame] = []
        self._session_or_none: Session | None = None
        # zero dates that full loads have read: by tasks that write, and by those for Spark, which begin again for these
        self._zero_dates: list[tuple[Accumulator[int], Accumulator[int]]] = []
        self._files: dict[str, int] = {}

    # -- start ------------------------------------------------------------------------------------------------

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Check everything, then note the place in the log from which new tables go on."""
        self._session_or_none = connect(self._where)
        with self._asking():
            self._server = servers.read_server(self._session)
            for name, position in positions.items():
                if position is not None:
                    check_identity(name, position, self._server, self._where.place)
            self._epoch = max((int(p.offsets.get("epoch", 1)) for p in positions.values() if p), default=1)
            taking_part = [target for target in self.spec.targets if target.table in positions]
            for number, target in enumerate(taking_part):
                self._admit(number, target, positions[target.table], recorded.get(target.table))
            self._begin_time = servers.now(self._session)
            if any(feed.position is None for feed in self._feeds.values()):
                self._begin, self._begin_time = self._snapshot_place()
                self._begin_gtid = servers.gtid_at(self._session, self._server, self._begin)
                reach("after_snapshot_place")

    def _snapshot_place(self) -> tuple[Place, datetime]:
        """A place in the log before which whoever reads now sees every transaction, and the server's clock."""
        if self.spec.options.dry_run:
            # whose rows nobody keeps, so that it need not be exact and takes no lock
            return servers.log_end(self._session, self._server)
        try:
            return servers.begin_snapshot(self._session, self._server)
        finally:
            self._session.rollback()

    def _admit(self, number: int, target: Target, position: Position | None, recorded: Position | None) -> None:
        """Take a table in, or refuse it without stopping the others."""
        name = target.table
        try:
            with self._asking():
                table = read_table(self._session, target, self.source, self._server.mariadb)
            twin = next((n for n, f in self._feeds.items() if f.table.label == table.label), None)
            if twin:
                raise InputError(f"{table.label} already feeds {twin}.", hint="Feed the other one in a job of its own.")
            if position:
                check_place(self._session, self._server, name, position, self._created)
            feed = Feed(number, table, (), position)
            if position and recorded:
                feed.stop = place_of(recorded.offsets).number
            feed.remember(open_target(self.spark, self.spec.catalog.name, name))
            self._feeds[name] = feed
        except LakecdcError as error:
            self._refuse(name, error)

    def _refuse(self, name: str, error: LakecdcError) -> None:
        error.table = error.table or name
        self._refused[name] = error
        self._feeds.pop(name, None)

    def _created(self, file: str) -> int:
        """When a log file was made."""
        if file not in self._files:
            self._files[file] = binlog.file_created(self._where, file)
        return self._files[file]

    # -- rounds -----------------------------------------------------------------------------------------------

    def rounds(self) -> Iterator[list[TableBatch]]:
        """First the new tables' full load, part by part, then the log up to where it ended at that moment."""
        yield from self._loads()
        end: tuple[Place, datetime] | None = None
        while self._live():
            with self._asking():
                end = end or servers.log_end(self._session, self._server)
                begin = min((feed.place for feed in self._live()), key=lambda place: place.number)
                found = self._read(begin, end[0])
                place = found.summary.place
                reached = place.number >= end[0].number or place == begin
                moment = end[1] if reached else datetime.fromtimestamp(found.summary.seconds, UTC)
                batches = self._batches(found, moment, reached)
            yield batches
            if reached:
                return

    def _live(self) -> list[Feed]:
        return [feed for feed in self._feeds.values() if not feed.failed and not feed.loading]

    def _read(self, begin: Place, end: Place) -> binlog.Round:
        live = self._live()
        stops = [feed.stop for feed in live if feed.stop > feed.place.number]
        source, stop = self.source, min([end.number, *stops])
        limits = Limits(stop, source.max_batch_events, source.max_transaction_events)
        # a batch that is repeated ends where it did, whatever ended it then
        if stops:
            limits = replace(limits, events=_NO_LIMIT)
        else:
            limits = replace(limits, bytes=source.max_batch_bytes, seconds=source.max_batch_seconds)
        wanted = {feed.number: self._wanted(feed) for feed in live}
        task = binlog.ReadLog(self._where, self._server, self.source.server_id, begin, limits, wanted)
        self._round = binlog.read(self.spark, task)
        return self._round

    def _wanted(self, feed: Feed) -> Wanted:
        table = feed.table
        excluded = frozenset(table.target.exclude_columns)
        now = tuple(column.named for column in table.columns)
        numbers = tuple(feed.numbers.items())
        types = feed.target_types(lambda: open_target(self.spark, self.spec.catalog.name, table.target.table))
        place, known = feed.place.number, tuple(types.items())
        return Wanted(table.schema, table.name, place, feed.key, excluded, now, numbers, feed.ahead, known)

    def _batches(self, found: binlog.Round, moment: datetime, reached: bool) -> list[TableBatch]:
        lag = max(0.0, (servers.now(self._session) - moment).total_seconds())
        facts = {"source_lag_seconds": round(lag, 3), "log_bytes": found.summary.bytes}
        batches = []
        for feed in self._live():
            try:
                with self._asking():
                    batches.append(self._batch(found, feed, moment, reached, facts))
            except LakecdcError as error:
                self._refuse(feed.table.target.table, error)
        return batches

    def _batch(
        self, found: binlog.Round, feed: Feed, moment: datetime, reached: bool, facts: Mapping[str, Any]
    ) -> TableBatch:
        summary, number, name = found.summary, feed.number, feed.table.target.table
        if number in summary.lost:
            raise full_load_needed(f"The source table {feed.table.label} {summary.lost[number]}", name)
        altered, before = number in summary.altered, feed.numbers
        if altered:
            feed.table = read_table(self._session, feed.table.target, self.source, self._server.mariadb)
        numbers = summary.columns.get(number, before)
        names = {of: name for name, of in numbers.items()}
        relations = [binlog.named(relation, names) for relation in found.relations(number)]
        feed.take(numbers, relations, altered, reached)
        table, columns, fills = feed.table, feed.columns, {}
        if altered or len(relations) > 1:
            added = [names[of] for of in summary.added.get(number, ()) if of in names]
            fills = checked_fills(self.spark, self._session, table, columns, added)
            columns = with_fills(columns, fills)
        made = Native()
        if summary.events.get(number):
            made = self._made(found, feed, relations, columns)
            known = bases(table, relations)
            changes = partial(binlog.changes, found, number, relations, feed.key, columns, known, self._epoch)
            made = rounds.with_changes(made, changes)
            facts = {**facts, "decoded_by": f"jvm: {made.reason}" if made.reason else "native"}
        feed.zero_dates += summary.zero_dates.get(number, 0)
        position = self._position(feed, summary.place, summary.gtid, moment)
        batch = TableBatch(
            target=table.target,
            key=feed.key,
            columns=columns,
            changes=made.changes,
            position=position,
            folded=made.folded,
            packed=made.packed,
            every_event=made.every_event,
            truncate_order=binlog.truncate_order(found, number, self._epoch),
            overtaken_below=order_key(self._epoch, feed.ahead) if feed.ahead else None,
            source_columns=feed.source_columns,
            columns_told=feed.told(before, position),
            facts={**facts, **self._zero_date_facts(feed)},
        )
        return rounds.repeatable(batch, made)

    def _made(self, found: binlog.Round, feed: Feed, relations: list[Relation], columns: tuple[Column, ...]) -> Native:
        """The changes of a table, folded by the native engine's tasks, or why they are the JVM's."""
        number, target = feed.number, feed.table.target
        layout: LogLayout | str
        if number in found.summary.truncates:
            layout = "a TRUNCATE"
        elif number in found.summary.altered or len(relations) != 1:
            layout = "the source has altered the table"
        elif not feed.key and found.summary.events[number].get("d"):
            layout = "a delete in a table without a key"
        else:
            layout = refusal(self.spec.options, target) or binlog.layout(found, relations[0], feed.key, columns)
        by = partition_transforms(open_target(self.spark, self.spec.catalog.name, target.table), target)
        made = rounds.folded(found.cells, number, layout, found.size(number), target, by, self._epoch)
        self._kept += made.kept
        return made

    def _zero_date_facts(self, feed: Feed) -> dict[str, int]:
        loaded = sum(by_spark.value or by_tasks.value for by_tasks, by_spark in self._zero_dates)
        found = feed.zero_dates + loaded
        return {"zero_dates": found} if found else {}

    def _position(self, feed: Feed, to: Place, gtid: str, moment: datetime | None) -> Position:
        """A table that was ahead of the others stays where it is."""
        before = feed.position
        read_through = moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None
        if before and before.read_through and read_through:
            read_through = max(before.read_through, read_through)
        old = str(before.offsets.get("gtid", "")) if before else ""
        if before and feed.place.number >= to.number:
            to, gtid = feed.place, ""
        known = {"epoch": self._epoch, "gtid": merged_gtid(old, gtid), "created": self._created(to.file)}
        offsets: dict[str, Any] = {**to.offsets(), **known}
        if feed.ahead > to.number:
            offsets["loaded"] = feed.ahead
        return Position(TYPE, self._server.identity, offsets, read_through)

    # -- full load --------------------------------------------------------------------------------------------

    def _loads(self) -> Iterator[list[TableBatch]]:
        """Rounds with a part of every table that has parts left."""
        feeds = {name: feed for name, feed in self._feeds.items() if feed.loading}
        loads = {name: self._parts(feed) for name, feed in feeds.items()}
        return rounds_of_parts(loads, lambda name: feeds[name].failed, self._refuse, self._asking)

    def _parts(self, feed: Feed) -> Iterator[TableBatch]:
        """The parts of a full load; the last one only tells up to where in the log its rows may have been read."""
        target, source = feed.table.target, self.source
        if feed.position is None:
            feed.begin()
        if not target.keyed and not self.spec.options.dry_run:
            yield self._load_exactly(feed)
            return
        # a change log would have the rows of a part twice that a killed run has left behind there
        whole = self.spec.options.dry_run or target.history_table or reloads(self.spec, target)
        size = 0 if whole else source.full_load_commit_rows
        session = connect(self._where, texts=True)
        try:
            for part in parts(session, feed.table, source.chunk_rows, size, feed.progress):
                yield self._load(feed, part) if part.chunks else self._loaded(feed)
        finally:
            session.close()

    def _load(self, feed: Feed, part: Part) -> TableBatch:
        place, gtid = (feed.place, "") if feed.position else (self._begin, self._begin_gtid)
        shares = deal(part.chunks, self.source.full_load_parallelism)
        position = self._position(feed, place, gtid, None)
        after = {"load": part.after.encode()} if part.after else {}
        feed.chunks += len(part.chunks)
        by_tasks, by_spark = self._readings(feed, shares)
        texts = snapshot.texts(self.spark, by_spark)
        batch = self._load_batch(feed, texts, replace(position, offsets={**position.offsets, **after}))
        assert batch.changes is not None
        known, odd = bases(feed.table, ()), odd_for_arrow(feed.table, feed.columns)
        read = snapshot.ReadTables(by_tasks, tuple((known[c.name], c.type) for c in feed.columns))
        rows = ArrowRows(batch.changes, read, len(shares), self._load_order(place), self._begin_time, odd)
        return replace(batch, arrow_rows=rows)

    def _loaded(self, feed: Feed) -> TableBatch:
        """The end of the reading, for good: what it has seen must not depend on when the log is read."""
        position = self._position(feed, feed.place, "", None)
        end, _clock = servers.log_end(self._session, self._server)
        offsets = {**position.offsets, "loaded": end.number}
        table = feed.table
        return TableBatch(table.target, feed.key, feed.columns, None, replace(position, offsets=offsets))

    def _load_exactly(self, feed: Feed) -> TableBatch:
        session = connect(self._where, texts=True)
        try:
            found = snapshot.chunks(session, feed.table, self.source.chunk_rows)
        finally:
            session.close()
        reach("after_chunks")
        feed.chunks += len(found)
        _by_tasks, by_spark = self._readings(feed, deal(found, 1))
        exact = snapshot.ReadExactly(self._server, by_spark)
        kept, place = snapshot.exact_texts(self.spark, exact)
        self._kept.append(kept)
        gtid = servers.gtid_at(self._session, self._server, place)
        texts = kept.where(F.col(snapshot.PLACE).isNull())
        return self._load_batch(feed, texts, self._position(feed, place, gtid, None))

    def _readings(
        self, feed: Feed, shares: tuple[tuple[snapshot.Chunk, ...], ...]
    ) -> tuple[snapshot.ReadChunks, snapshot.ReadChunks]:
        """What tasks run that write the rows, and those that read them for Spark."""
        names = [column.name for column in feed.columns]
        context = self.spark.sparkContext
        self._zero_dates.append((context.accumulator(0), context.accumulator(0)))
        by_tasks, by_spark = self._zero_dates[-1]
        read = snapshot.read_chunks(self._where, feed.table, shares, names, by_tasks)
        return read, replace(read, zero_dates=by_spark)

    def _load_order(self, place: Place) -> str:
        """The order key of rows that are older than every change behind a place."""
        return order_key(self._epoch, place.number, 0, RANK_READ)

    def _load_batch(self, feed: Feed, texts: DataFrame, position: Position) -> TableBatch:
        """Rows of a full load, below every change behind the position."""
        table, values = feed.table, snapshot.values(feed.table, feed.columns)
        order = self._load_order(place_of(position.offsets))
        changes = partial(loaded, texts, feed.key, feed.columns, values, LoadMark(order, self._begin_time))
        return TableBatch(
            target=table.target,
            key=feed.key,
            columns=feed.columns,
            changes=changes(),
            position=position,
            full_load=True,
            judged=partial(changes, judged=True),
            source_columns=feed.source_columns,
            facts={"full_load_chunks": feed.chunks},
        )

    # -- what the job tells -----------------------------------------------------------------------------------

    def applied(self, table: str, position: Position) -> None:
        """The table stands at ``position`` now, committed."""
        self._feeds[table].position = position

    def failed(self, table: str, error: Exception) -> None:
        """The table takes no more batches; the next run goes on from its position, if the log still holds it."""
        self._feeds[table].failed = True

    def finish_round(self) -> None:
        """Free the disk of the round; the server keeps its log by its own rules."""
        reach("before_round_release")
        self._release_round()

    def _release_round(self) -> None:
        for kept in self._kept:
            kept.unpersist()
        self._kept.clear()
        if self._round:
            self._round.release()
            self._round = None

    def close(self) -> None:
        """Release session and disk."""
        self._release_round()
        if self._session_or_none:
            self._session_or_none.close()
            self._session_or_none = None

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self._where, "be read from")

    @property
    def _session(self) -> Session:
        if self._session_or_none is None:
            raise SourceUnavailableError("The source is not open.")
        return self._session_or_none
