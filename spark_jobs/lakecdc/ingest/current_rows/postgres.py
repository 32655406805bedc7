"""Tables of a Postgres database, read from one snapshot like full loads, without slot and publication.

Rows are reloaded from the snapshot of a temporary slot, which determines the log changes that they include.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column, Load, Rows
from lakecdc.ingest.current_rows import Loading, SourceRows
from lakecdc.ingest.current_rows.key_ranges import KeyCondition
from lakecdc.ingest.source_columns import key_numbers
from lakecdc.ingest.sources.database import all_fitting, check_driver, check_identity, deal
from lakecdc.ingest.sources.postgres import slots, snapshot
from lakecdc.ingest.sources.postgres.catalog import SourceTable, column_numbers, read_table, target_columns
from lakecdc.ingest.sources.postgres.checks import TYPE, check_same_table
from lakecdc.ingest.sources.postgres.connect import address, asking, connect
from lakecdc.ingest.sources.postgres.feed import Feed
from lakecdc.ingest.sources.postgres.snapshot import Chunk, Snapshot
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import LsnPosition


class Postgres:
    """The database of a Postgres source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, PostgresSource)
        check_driver("psycopg[binary]")
        self.spark, self.source, self.where = spark, spec.source, address(spec.source)
        self.session = connect(self.where)
        self.types = TypeCatalog(self.session, self.source.infinity)

    def open(self, target: Target, table: IcebergTable) -> Table:
        with asking(self.where):
            source_table = read_table(self.session, target)
            columns = target_columns(target, source_table.key, source_table.columns, self.types)
            own = {c.name: self.types.spark_type(c.type_oid, c.type_modifier) for c in source_table.columns}
        return Table(self, source_table, columns, {c.name: c.type for c in columns if own[c.name] == c.type})

    def close(self) -> None:
        self.session.close()


@dataclass(frozen=True)
class Table:
    """A source table."""

    database: Postgres
    table: SourceTable
    columns: tuple[Column, ...]
    ordered: dict[str, str]

    @property
    def key(self) -> tuple[str, ...]:
        return self.table.key

    @contextmanager
    def rows(self, condition: KeyCondition | None) -> Iterator[SourceRows]:
        with asking(self.database.where), closing(snapshot.export(self.database.where)) as exported:
            yield SourceRows(all_fitting(self._read(condition, exported, 0).judged))

    def _read(self, condition: KeyCondition | None, exported: Snapshot, epoch: int) -> Load:
        database = self.database
        shares = deal(self._chunks(condition), database.source.full_load_parallelism)
        return exported.load(database.spark, shares, database.types.type_rows(self.table, self.columns), epoch)

    @contextmanager
    def alone(self, max_wait: float) -> Iterator[None]:
        with closing(connect(self.database.where)) as session:
            with asking(self.database.where):
                slots.lock(session, self.database.source.slot, max_wait)
            yield

    def load(self, condition: KeyCondition | None, target: IcebergTable, position: Position, changes: Loading) -> Batch:
        database, spec = self.database, self.table.target
        with asking(database.where):
            cluster = slots.identity(database.session)
            check_identity(target.name, position, TYPE, cluster, database.where.place)
            # the comparison may have taken long: read the current columns
            now = database.open(spec, target)
            check_same_table(now.table, position)
            feed = Feed(now.table.oid, now.table, position, target_key=key_numbers(target, spec.feed))
            if feed.loading:
                raise InputError("Its full load has not finished.", hint="Run ingest first.")
            numbers = column_numbers(database.session, now.table.oid)
            with closing(snapshot.take(database.where, database.source.slot, temporary=True)) as exported:
                at = LsnPosition.of(position.offsets)
                read = now._read(condition, exported, at.epoch)
                rows = changes(all_fitting(read.judged), read.order, read.time)
        return Batch(
            target=spec,
            key=now.key,
            columns=now.columns,
            rows=Rows(rows),
            position=replace(position, offsets=replace(at, loaded=exported.lsn).encode()),
            source=SourceFacts(
                columns={column.name: numbers.get(column.name) for column in now.columns}, unproven=None
            ),
        )

    def _chunks(self, key_condition: KeyCondition | None) -> list[Chunk]:
        if key_condition is None:
            return snapshot.chunks(self.database.session, self.table, self.database.source.chunk_bytes)
        from psycopg import sql

        column = sql.Identifier(key_condition.column).as_string(self.database.session)
        conditions = key_condition.conditions(column, lambda number: f"'{key_condition.text(number)}'")
        return [
            Chunk(leaf.schema, leaf.name, leaf=leaf.oid, keys=condition)
            for condition in conditions
            for leaf in self.table.leaves
        ]

    def now(self) -> datetime:
        with asking(self.database.where):
            return slots.now(self.database.session)


open_source = Postgres
