"""MySQL and MariaDB as log servers: full loads from a place in the binary log on, and rounds of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial

from pyspark.sql import SparkSession

from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.change import ColumnHistory
from lakecdc.ingest.engine.log_layout import LogLayout
from lakecdc.ingest.sources.database import (
    LoadMark,
    check_driver,
    deal,
    full_load_needed,
    load_rows,
    plan_load,
    split_misfits,
)
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.log.parking import Parked
from lakecdc.ingest.sources.log.rounds import LogEnd, Round
from lakecdc.ingest.sources.log.server import LoadPart, LogServer, Refuse, TableChanges
from lakecdc.ingest.sources.log.source import LogSource
from lakecdc.ingest.sources.mysql import log as binlog
from lakecdc.ingest.sources.mysql import server as servers
from lakecdc.ingest.sources.mysql import snapshot
from lakecdc.ingest.sources.mysql.catalog import bases, list_tables, read_table, unlogged, with_fills
from lakecdc.ingest.sources.mysql.checks import TYPE, check_place
from lakecdc.ingest.sources.mysql.connect import Session, address, asking, connect
from lakecdc.ingest.sources.mysql.events import merged_gtid
from lakecdc.ingest.sources.mysql.feed import Feed
from lakecdc.ingest.sources.mysql.reading import Limits, LogTable, Summary
from lakecdc.ingest.sources.mysql.snapshot import Chunk, Progress, parts
from lakecdc.ingest.sources.mysql.types import convert
from lakecdc.metadata.positions import Position
from lakecdc.model.order import RANK_READ, order_key
from lakecdc.model.positions import BinlogPosition, LogPosition, Place
from lakecdc.runtime.failpoints import reach

_NO_LIMIT = 1 << 62


class MysqlServer(LogServer[Feed, Summary]):
    """See :class:`lakecdc.ingest.sources.log.server.LogServer`; the server removes its log by its own rules."""

    type = TYPE
    twin_hint = "Feed the other target in a separate job."
    summary = Summary

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, MysqlSource)
        self.source, self.where = spec.source, address(spec.source)
        super().__init__(spark, spec, self.where.place)
        self.asking, self.unlogged = partial(asking, self.where, "be read from"), unlogged(self.source)
        self._created = cache(partial(binlog.file_created, self.where))

    def open(self) -> str:
        self._session: Session = self._opened.enter_context(closing(connect(self.where)))
        with self.asking():
            self._server = servers.read_server(self._session)
            return self._server.identity

    # -- start ------------------------------------------------------------------------------------------------

    def describe(self, number: int, target: Target, position: Position | None, parked: list[Parked]) -> Feed:
        with self.asking():
            table = read_table(self._session, target, self.source, self._server.mariadb)
            feed = Feed(number, table, position, parked=parked)
            if position:
                at = feed.reached
                assert isinstance(at, BinlogPosition)
                check_place(self._session, self._server, target.table, at, self._created)
            feed.remember(self.target_table(target))
            return feed

    def describe_columns(self, feed: Feed) -> None:
        feed.derive_columns()

    def prepare(
        self, positions: Mapping[str, Position | None], feeds: Mapping[str, Feed], refuse: Refuse
    ) -> Mapping[str, int]:
        """Record the place from which the log is applied to new tables."""
        self._begin_time = servers.now(self._session)
        if any(feed.position is None for feed in feeds.values()):
            place, self._begin_time = self._snapshot_place()
            self._begin = BinlogPosition(place, servers.gtid_at(self._session, self._server, place))
            reach("after_snapshot_place")
        return {}

    def _snapshot_place(self) -> tuple[Place, datetime]:
        """Return a place in the log whose earlier transactions every later reader sees, and the server's clock."""
        if self.spec.options.dry_run:
            # the rows of a dry run are discarded, so the place need not be exact and needs no lock
            return servers.log_end(self._session, self._server)
        try:
            return servers.begin_snapshot(self._session, self._server)
        finally:
            self._session.rollback()

    # -- rounds -----------------------------------------------------------------------------------------------

    def log_end(self) -> LogEnd:
        place, clock = servers.log_end(self._session, self._server)
        return LogEnd(BinlogPosition(place), clock)

    def now(self) -> datetime:
        return servers.now(self._session)

    def read_log(self, feeds: Sequence[Feed], end: LogEnd, *, repeated: bool) -> Round[Summary]:
        reached = [at for feed in feeds if isinstance(at := feed.reached, BinlogPosition)]
        begin = min(reached, key=lambda at: at.number).place
        stops = [feed.stop for feed in feeds if feed.stop > feed.reach]
        source, stop = self.source, min([end.at.number, *stops])
        limits = Limits(stop, source.max_batch_events, source.max_transaction_events)
        # a repeated batch must end at the same place again
        if stops or repeated:
            limits = replace(limits, events=_NO_LIMIT)
        else:
            limits = replace(limits, bytes=source.max_batch_bytes, seconds=source.max_batch_seconds)
        log_tables = {feed.relation: self._log_table(feed) for feed in feeds}
        task = binlog.ReadLog(self.where, limits, self._server, source.server_id, begin, log_tables)
        summary, cells = rounds.read(self.spark, task, Summary)
        at, moment = BinlogPosition(summary.place, summary.gtid), datetime.fromtimestamp(summary.seconds, UTC)
        is_end = summary.place == begin or (at.number >= end.at.number and not repeated)
        if at.number >= end.at.number or (is_end and not repeated):
            moment = end.time
        return Round(summary, LogEnd(at, moment), cells, at_log_end=is_end, facts={"log_bytes": summary.bytes})

    def _log_table(self, feed: Feed) -> LogTable:
        table, excluded = feed.table, frozenset(feed.table.target.exclude_columns)
        numbers = tuple(feed.numbers_reached.items())
        types = tuple(feed.target_types(lambda: self.target_table(table.target)).items())
        columns = table.columns, numbers, feed.ahead, types
        return LogTable(table.schema, table.name, feed.reach, feed.key, excluded, *columns)

    def take(self, log_round: Round[Summary], feed: Feed, relation: int) -> TableChanges:
        summary, name = log_round.summary, feed.table.target.table
        if relation in summary.lost:
            raise full_load_needed(f"The source table {feed.table.label} {summary.lost[relation]}", name)
        altered, before = relation in summary.altered, feed.numbers
        if altered:
            with self.asking():
                feed.table = read_table(self._session, feed.table.target, self.source, self._server.mariadb)
        numbers = summary.columns.get(relation, before)
        names = {of: name for name, of in numbers.items()}
        relations = [binlog.named(one, names) for one in summary.relations_of(relation)]
        feed.take(numbers, relations, altered, log_round.at_log_end)
        columns = feed.columns
        if altered or len(relations) > 1:
            added = [names[of] for of in summary.added.get(relation, ()) if of in names]
            with self.asking():
                columns = with_fills(self._session, feed.table, columns, added)
        by_name = bases(feed.table, relations)
        versions = [binlog.version(each, feed.key, by_name) for each in relations]
        feed.zero_dates += summary.zero_dates.get(relation, 0)
        return TableChanges(
            layout=LogLayout(tuple(versions), columns, feed.key, convert, summary.end),
            source_columns=feed.source_columns,
            column_history=ColumnHistory(before, feed.at, max(feed.at, log_round.end.at.number)) if before else None,
            facts=feed.facts,
        )

    def position_at(self, feed: Feed, before: LogPosition | None, at: LogPosition) -> LogPosition:
        assert isinstance(at, BinlogPosition)
        if isinstance(before, BinlogPosition):
            stays = before.number >= at.number
            gtid = merged_gtid(before.gtid, "" if stays else at.gtid)
            at = replace(before if stays else at, gtid=gtid)
        # the server may no longer have the file of a parked round
        return BinlogPosition(at.place, at.gtid, at.created or self._created(at.place.file))

    # -- full load --------------------------------------------------------------------------------------------

    def load(self, feed: Feed, epoch: int, *, whole: bool) -> Iterator[LoadPart]:
        """Read a table in full; the last part only records the place in the log up to which rows may have been read."""
        if feed.position is None:
            feed.begin()
        if not feed.table.target.keyed and not self.spec.options.dry_run:
            yield self._load_exactly(feed, epoch)
            return
        size = 0 if whole else self.source.full_load_commit_rows
        before = Progress(**feed.load) if feed.load else None
        with closing(connect(self.where, texts=True)) as session:
            for chunks, after in parts(session, feed.table, self.source.chunk_rows, size, before):
                yield self._load_part(feed, chunks, after, epoch)
        assert feed.committed is not None
        # the place must be that of the reading, not of a later run
        yield LoadPart(feed.committed, loaded=self.log_end().at.number)

    def _load_part(self, feed: Feed, chunks: Sequence[Chunk], after: Progress, epoch: int) -> LoadPart:
        at = feed.committed or self._begin
        shares = deal(chunks, self.source.full_load_parallelism)
        feed.chunks += len(chunks)
        mark = LoadMark(order_key(epoch, at.number, 0, RANK_READ), self._begin_time)
        by_tasks, by_spark = self._readings(feed, shares)
        load = plan_load(self.spark, by_tasks.rows, mark, by_tasks, by_spark, len(shares))
        return LoadPart(at, asdict(after), rows=load_rows(load))

    def _load_exactly(self, feed: Feed, epoch: int) -> LoadPart:
        with closing(connect(self.where, texts=True)) as session:
            chunks = snapshot.chunks(session, feed.table, self.source.chunk_rows)
        reach("after_chunks")
        feed.chunks += len(chunks)
        _, by_spark = self._readings(feed, deal(chunks, 1))
        task = snapshot.ReadExactly(self._server, by_spark)
        exact = snapshot.exact_rows(self.spark, task, epoch, self._begin_time)
        at = BinlogPosition(exact.place, servers.gtid_at(self._session, self._server, exact.place))
        return LoadPart(at, rows=split_misfits(exact.judged, exact.facts), cached=(exact.persisted,))

    def _readings(
        self, feed: Feed, shares: tuple[tuple[Chunk, ...], ...]
    ) -> tuple[snapshot.ReadTables, snapshot.ReadTables]:
        """Return the tasks that write the rows, and the tasks that read them for Spark."""
        context = self.spark.sparkContext
        by_tasks, by_spark = context.accumulator(0), context.accumulator(0)
        feed.loaded_zero_dates.append((by_tasks, by_spark))
        read = snapshot.read_tables(self.where, feed.table, feed.key, feed.columns, shares)
        return replace(read, zero_dates=by_tasks), replace(read, zero_dates=by_spark)


def open_source(spark: SparkSession, spec: JobSpec) -> LogSource[Feed, Summary]:
    """Open the source of an ingest spec.

    :raises LakecdcError: the driver is missing, or the password's reference cannot be resolved.
    """
    check_driver("pymysql")
    return LogSource(spark, spec, MysqlServer(spark, spec))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """List all tables visible to the user, ``database.table``.

    :raises LakecdcError: the server cannot be reached.
    """
    assert isinstance(spec.source, MysqlSource)
    with connect(address(spec.source)) as session:
        return list_tables(session)
