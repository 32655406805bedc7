"""Tables of a Postgres database, read from one snapshot as full loads are, without slot and publication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.ingest.change import Column
from lakecdc.ingest.sources.database import deal
from lakecdc.ingest.sources.postgres import check_driver, snapshot
from lakecdc.ingest.sources.postgres.catalog import SourceTable, read_table, target_columns
from lakecdc.ingest.sources.postgres.connect import address, asking, connect
from lakecdc.ingest.sources.postgres.snapshot import Chunk, CopyChunks
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.reconcile.sources import SourceRows

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.reconcile.ranges import Wanted

    Session = psycopg.Connection[tuple[Any, ...]]


class Postgres:
    """The database of a Postgres source.

    :raises LakecdcError: it cannot be reached.
    """

    def __init__(self, spark: SparkSession, source: PostgresSource) -> None:
        self.spark, self.source, self.where = spark, source, address(source)
        self.session = connect(self.where)
        self.types = TypeCatalog(self.session)

    def open(self, target: Target, table: IcebergTable) -> Table:
        """See :class:`lakecdc.reconcile.sources.Source`."""
        with asking(self.where):
            found = read_table(self.session, target)
            columns = target_columns(target, found.key, found.columns, self.types)
            own = {c.name: self.types.spark_type(c.type_oid, c.type_modifier) for c in found.columns}
        return Table(self, found, columns, {c.name: c.type for c in columns if own[c.name] == c.type})

    def close(self) -> None:
        """Close the session."""
        self.session.close()


@dataclass(frozen=True)
class Table:
    """One of its tables; see :class:`lakecdc.reconcile.sources.SourceTable`."""

    database: Postgres
    table: SourceTable
    columns: tuple[Column, ...]
    ordered: dict[str, str]

    @property
    def key(self) -> tuple[str, ...]:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        return self.table.key

    @contextmanager
    def rows(self, wanted: Wanted | None) -> Iterator[SourceRows]:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        database, where = self.database, self.database.where
        with asking(where):
            taken = snapshot.export(where)
            shares = deal(self._chunks(wanted), database.source.full_load_parallelism)
            values = database.types.values(self.table.columns, self.columns)
        copy = CopyChunks(where, taken.name, shares, tuple(column.name for column in self.columns))
        try:
            found = snapshot.rows(database.spark, copy, self.table, self.columns, values, taken, 0, None)
            yield SourceRows(found.changes)
        finally:
            taken.close()

    def _chunks(self, wanted: Wanted | None) -> list[Chunk]:
        if wanted is None:
            return snapshot.chunks(self.database.session, self.table, self.database.source.chunk_bytes)
        column = _quoted(wanted.column)
        conditions = wanted.conditions(column, lambda number: f"'{wanted.text(number)}'")
        return [
            Chunk(leaf.schema, leaf.name, leaf=leaf.oid, keys=condition)
            for condition in conditions
            for leaf in self.table.leaves
        ]

    def now(self) -> datetime:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        with asking(self.database.where):
            row = self.database.session.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment


def open_source(spark: SparkSession, spec: JobSpec) -> Postgres:
    """The source of a spec whose source is of type ``postgres``.

    :raises LakecdcError: the driver's package is missing, or the database cannot be reached.
    """
    assert isinstance(spec.source, PostgresSource)
    check_driver()
    return Postgres(spark, spec.source)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
