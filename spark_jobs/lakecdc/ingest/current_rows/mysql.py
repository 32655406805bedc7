"""Tables of a MySQL or MariaDB server, read by key ranges like full loads.

Sessions cannot share a snapshot: rows that change during the read differ at first and agree in the recheck. Rows are
reloaded by one task in one transaction, whose log position is known exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.current_rows import Loading, SourceRows
from lakecdc.ingest.current_rows.key_ranges import KeyCondition
from lakecdc.ingest.sources.database import LoadMark, all_fitting, check_driver, check_identity, deal, plan_load
from lakecdc.ingest.sources.mysql import server as servers
from lakecdc.ingest.sources.mysql import snapshot
from lakecdc.ingest.sources.mysql.catalog import SourceTable, described, read_table, target_columns, unlogged
from lakecdc.ingest.sources.mysql.checks import TYPE, check_place
from lakecdc.ingest.sources.mysql.connect import Session, address, asking, connect, quoted
from lakecdc.ingest.sources.mysql.feed import Feed
from lakecdc.ingest.sources.mysql.log import file_created
from lakecdc.ingest.sources.mysql.snapshot import Chunk
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import BinlogPosition

_DOING = "compare its tables"


class Mysql:
    """The server of a MySQL source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, MysqlSource)
        check_driver("pymysql")
        self.spark, self.source, self.where = spark, spec.source, address(spec.source)
        self.session = connect(self.where)
        with asking(self.where, _DOING):
            self.server = servers.read_server(self.session)

    def open(self, target: Target, table: IcebergTable) -> Table:
        with asking(self.where, _DOING):
            source_table = read_table(self.session, target, self.source, self.server.mariadb)
        columns = target_columns(source_table, described(source_table), source_table.key)
        return Table(self, source_table, columns)

    def close(self) -> None:
        self.session.close()


@dataclass(frozen=True)
class Table:
    """A source table."""

    database: Mysql
    table: SourceTable
    columns: tuple[Column, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return self.table.key

    @property
    def ordered(self) -> dict[str, str]:
        own = {c.name: c.type.spark for c in self.table.columns if c.type and c.base in snapshot.ORDERED}
        return {c.name: c.type for c in self.columns if own.get(c.name) == c.type}

    @contextmanager
    def rows(self, condition: KeyCondition | None) -> Iterator[SourceRows]:
        database = self.database
        shares = deal(self._chunks(condition), database.source.full_load_parallelism)
        read = snapshot.read_tables(database.where, self.table, self.key, self.columns, shares)
        load = plan_load(database.spark, read.rows, LoadMark("", datetime.now(UTC)), read, read, len(shares))
        yield SourceRows(all_fitting(load.judged))

    def alone(self, max_wait: float) -> AbstractContextManager[None]:
        """Return a null context: the server has no lock for ingestion runs."""
        return nullcontext()

    def load(self, condition: KeyCondition | None, target: IcebergTable, position: Position, changes: Loading) -> Batch:
        database, where = self.database, self.database.where
        with closing(connect(where)) as session, asking(where, "load rows from"):
            feed, time = self._feed(session, target, position), servers.now(session)
        shares = deal(self._chunks(condition), 1)
        tables = snapshot.read_tables(where, feed.table, feed.key, feed.columns, shares)
        at = BinlogPosition.of(position.offsets)
        exact = snapshot.exact_rows(database.spark, snapshot.ReadExactly(database.server, tables), at.epoch, time)
        try:
            rows = changes(all_fitting(exact.judged), exact.mark.order, time)
        finally:
            exact.persisted.unpersist()
        return Batch(
            target=self.table.target,
            key=feed.key,
            columns=feed.columns,
            rows=Rows(rows),
            position=replace(position, offsets=replace(at, loaded=max(feed.ahead, exact.place.number)).encode()),
            source=SourceFacts(columns=feed.source_columns, unproven=unlogged(database.source)),
        )

    def _feed(self, session: Session, target: IcebergTable, position: Position) -> Feed:
        """Return the table's feed state with the source's current columns, since the comparison may have taken long."""
        database = self.database
        check_identity(target.name, position, TYPE, database.server.identity, database.where.place)
        at = BinlogPosition.of(position.offsets)
        check_place(session, database.server, target.name, at, partial(file_created, database.where))
        table = read_table(session, self.table.target, database.source, database.server.mariadb)
        feed = Feed(0, table, position)
        feed.remember(target)
        feed.derive_columns()
        if feed.loading:
            raise InputError("Its full load has not finished.", hint="Run ingest first.")
        if feed.stop > feed.at:
            raise InputError("A run of ingest was interrupted.", hint="Run ingest first.")
        if feed.numbers and {*feed.numbers} != {column.name for column in table.columns}:
            raise InputError(
                f"The columns of {table.label} have changed, and ingestion has not reached the change.",
                hint="Run ingest first.",
            )
        return feed

    def _chunks(self, condition: KeyCondition | None) -> list[Chunk]:
        if condition is not None:
            conditions = condition.conditions(quoted(condition.column), lambda number: f"'{condition.text(number)}'")
            return [Chunk(condition) for condition in conditions]
        where = self.database.where
        with closing(connect(where, texts=True)) as session, asking(where, _DOING):
            return snapshot.chunks(session, self.table, self.database.source.chunk_rows)

    def now(self) -> datetime:
        with closing(connect(self.database.where)) as session, asking(self.database.where, _DOING):
            return servers.now(session)


open_source = Mysql
