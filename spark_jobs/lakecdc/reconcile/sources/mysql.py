"""Tables of a MySQL or MariaDB server, read by ranges of their keys as full loads are.

Its sessions share no snapshot: what changes while a table is read differs at first, and agrees when it is looked at
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.ingest.change import Column
from lakecdc.ingest.sources.database import deal, full_load_frame
from lakecdc.ingest.sources.mysql import check_driver, snapshot
from lakecdc.ingest.sources.mysql import server as servers
from lakecdc.ingest.sources.mysql.catalog import SourceTable, described, read_table, target_columns
from lakecdc.ingest.sources.mysql.connect import address, asking, connect, quoted
from lakecdc.ingest.sources.mysql.snapshot import Chunk
from lakecdc.reconcile.sources import SourceRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.reconcile.ranges import Wanted

_DOING = "compare its tables"


class Mysql:
    """The server of a MySQL source.

    :raises LakecdcError: it cannot be reached, or its settings would not let it feed tables.
    """

    def __init__(self, spark: SparkSession, source: MysqlSource) -> None:
        self.spark, self.source, self.where = spark, source, address(source)
        self.session = connect(self.where)
        with asking(self.where, _DOING):
            self.server = servers.read_server(self.session)

    def open(self, target: Target, table: IcebergTable) -> Table:
        """See :class:`lakecdc.reconcile.sources.Source`."""
        with asking(self.where, _DOING):
            found = read_table(self.session, target, self.source, self.server.mariadb)
        columns = target_columns(found, described(found), found.key)
        return Table(self, found, columns)

    def close(self) -> None:
        """Close the session."""
        self.session.close()


@dataclass(frozen=True)
class Table:
    """One of its tables; see :class:`lakecdc.reconcile.sources.SourceTable`."""

    database: Mysql
    table: SourceTable
    columns: tuple[Column, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        return self.table.key

    @property
    def ordered(self) -> dict[str, str]:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        own = {c.name: c.named.type.spark for c in self.table.columns if c.named.type and c.base in snapshot.ORDERED}
        return {c.name: c.type for c in self.columns if own.get(c.name) == c.type}

    @contextmanager
    def rows(self, wanted: Wanted | None) -> Iterator[SourceRows]:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        database = self.database
        shares = deal(self._chunks(wanted), database.source.full_load_parallelism)
        names = [column.name for column in self.columns]
        texts = snapshot.texts(database.spark, snapshot.read_chunks(database.where, self.table, shares, names, None))
        values = snapshot.values(self.table, self.columns)
        yield SourceRows(full_load_frame(texts, self.key, self.columns, values, "", datetime.now(UTC)))

    def _chunks(self, wanted: Wanted | None) -> list[Chunk]:
        if wanted is not None:
            found = wanted.conditions(quoted(wanted.column), lambda number: f"'{wanted.text(number)}'")
            return [Chunk(condition) for condition in found]
        where = self.database.where
        with closing(connect(where, texts=True)) as session, asking(where, _DOING):
            return snapshot.chunks(session, self.table, self.database.source.chunk_rows)

    def now(self) -> datetime:
        """See :class:`lakecdc.reconcile.sources.SourceTable`."""
        with closing(connect(self.database.where)) as session, asking(self.database.where, _DOING):
            return servers.now(session)


def open_source(spark: SparkSession, spec: JobSpec) -> Mysql:
    """The source of a spec whose source is of type ``mysql``.

    :raises LakecdcError: the driver's package is missing, or the server cannot be reached.
    """
    assert isinstance(spec.source, MysqlSource)
    check_driver()
    return Mysql(spark, spec.source)
