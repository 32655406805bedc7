"""Load tables in full: cut into ranges of the leading key column, each range read by a Spark task.

MySQL sessions cannot share a snapshot. So a place in the log is recorded first, whose earlier transactions all readers
see; a chunk that is read later may have newer rows. The log is then read from that place on. As every change has the
whole row, replaying changes that a chunk already has leads to the same rows. The rows have the order key of that place
with the rank of a read, below every change.

Chunks are read in the order of the leading column, so one value is the progress of an interrupted load: rows below it
were read, the others were not. The remaining rows may be cut differently. The value is void if the column's sort order
changes.

In modes append and history, rows are only added and never converge, so one task reads the whole table in one
transaction, whose snapshot is exactly the state at its place in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.text_columns import TextColumn, TypeRows
from lakecdc.ingest.sources.database import LoadMark, fingerprint, judged, persist_load
from lakecdc.ingest.sources.mysql.catalog import SourceTable, as_text
from lakecdc.ingest.sources.mysql.connect import Address, Session, asking, connect, patiently, query, quoted
from lakecdc.ingest.sources.mysql.server import Server, begin_snapshot
from lakecdc.ingest.sources.mysql.types import BYTES, DATED, convert, count_zero_dates
from lakecdc.model.order import RANK_READ, order_key
from lakecdc.model.positions import Place
from lakecdc.runtime.failpoints import reach
from lakecdc.runtime.progress import ProgressLog
from lakecdc.runtime.worker import settle

_ROWS = 10_000
PLACE = "_lakecdc_place"
# metadata.json has the positions of all retained snapshots
_MOST_BYTES = 1000
_LEADING = """
SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = %s
"""
#: types whose index order is the order of their literals
ORDERED = frozenset(
    {
        *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "char", "varchar"),
        *("date", "datetime", "timestamp", "binary", "varbinary"),
    }
)


@dataclass(frozen=True)
class Chunk:
    """A range of rows.

    :param condition: SQL on the leading key column.
    :param end: literal of the first value above the range; None for the last range.
    """

    condition: str
    end: str | None = None


def chunks(session: Session, table: SourceTable, rows: int, start: str | None = None) -> list[Chunk]:
    """Cut a table by values of its leading key column, stepping through its index.

    :param session: one that returns texts.
    :param rows: rows per chunk; rows with the same value share one.
    :param start: literal of the first value; default: the table's beginning.
    """
    column = next((c for c in table.columns if c.name == table.leading), None)
    if column is None or column.base not in ORDERED:
        return [Chunk("true")]
    name = quoted(column.name)
    bounds: list[str] = []
    while bound := _next_bound(session, table, name, column.base in BYTES, rows, bounds[-1] if bounds else start):
        bounds.append(bound)
    if not bounds:
        return [Chunk(f"{name} >= {start}" if start else "true")]
    # ranges exclude nulls, which only keys other than the primary key may have
    first = f"{name} >= {start} AND {name} < {bounds[0]}" if start else f"({name} < {bounds[0]} OR {name} IS NULL)"
    middle = [Chunk(f"{name} >= {low} AND {name} < {high}", high) for low, high in pairwise(bounds)]
    return [Chunk(first, bounds[0]), *middle, Chunk(f"{name} >= {bounds[-1]}")]


def _next_bound(
    session: Session, table: SourceTable, name: str, is_bytes: bool, rows: int, last: str | None
) -> str | None:
    """Return the literal ``rows`` rows further on, or of the first larger value; None at the end."""
    source = quoted(table.schema, table.name)
    value = f"HEX({name})" if is_bytes else name
    after = f"WHERE {name} >= {last}" if last else f"WHERE {name} IS NOT NULL"
    values = query(session, f"SELECT {value} FROM {source} {after} ORDER BY {name} LIMIT 1 OFFSET {rows}")
    bound = _literal(values[0][0], is_bytes) if values else None
    if bound is None or bound != last:
        return bound
    values = query(session, f"SELECT {value} FROM {source} WHERE {name} > {last} ORDER BY {name} LIMIT 1")
    return _literal(values[0][0], is_bytes) if values else None


def _literal(text: Any, is_bytes: bool) -> str:
    from pymysql.converters import escape_string

    return f"x'{text}'" if is_bytes else f"'{escape_string(str(text))}'"


@dataclass(frozen=True)
class Progress:
    """The progress of a full load.

    :param bound: SQL literal; rows with a lower leading column were read. None if all were.
    :param leading: fingerprint of the leading column.
    """

    bound: str | None
    leading: str


def parts(
    session: Session, table: SourceTable, chunk_rows: int, part_rows: int, before: Progress | None
) -> Iterator[tuple[tuple[Chunk, ...], Progress]]:
    """Cut the rest of a full load into parts; yield the chunks of each part and the progress after it.

    :param session: one that delivers texts.
    :param part_rows: rows in a part; 0 makes one part of all.
    :raises InputError: the leading column has changed since the first part.
    """
    leading = before.leading if before else _fingerprint(session, table)
    _check(session, table, leading)
    bound = before.bound if before else None
    rest = [] if before and bound is None else chunks(session, table, chunk_rows, bound)
    reach("after_chunks")
    size = max(1, part_rows // chunk_rows) if part_rows else max(1, len(rest))
    progress = ProgressLog(table.target.table, "chunks", len(rest))
    for share in _shares(rest, size):
        _check(session, table, leading)
        yield share, Progress(share[-1].end, leading)
        # the caller asks for the next part after committing this one
        progress.add(len(share))
    # the sort order must not have changed during the last part either
    _check(session, table, leading)


def _shares(all_chunks: Sequence[Chunk], size: int) -> Iterator[tuple[Chunk, ...]]:
    """Group chunks into parts whose ends fit into a position."""
    share: list[Chunk] = []
    for chunk in all_chunks:
        share.append(chunk)
        if len(share) >= size and chunk.end is not None and len(json.dumps(chunk.end)) <= _MOST_BYTES:
            yield tuple(share)
            share = []
    if share:
        yield tuple(share)


def _check(session: Session, table: SourceTable, leading: str) -> None:
    if _fingerprint(session, table) != leading:
        raise table.full_load_needed(
            f"{table.label} changed its column {table.leading!r}, by which it is ordered, during the load"
        )


def _fingerprint(session: Session, table: SourceTable) -> str:
    """Return the fingerprint of the leading column's sort order."""
    return fingerprint(query(session, _LEADING, (table.schema, table.name, table.leading or "")))


@dataclass(frozen=True)
class ReadTables:
    """Task of a full load; see :class:`lakecdc.ingest.change.Load`.

    :param source: the table, quoted.
    :param shares: chunks by number of the task.
    """

    where: Address
    source: str
    shares: tuple[tuple[Chunk, ...], ...]
    rows: TypeRows
    zero_dates: Accumulator[int] | None = None

    def __call__(self, number: int) -> Iterator[pa.Table]:
        with closing(connect(self.where, texts=True)) as session, self.asking():
            yield from self.typed(session, number)

    def asking(self) -> AbstractContextManager[None]:
        return asking(self.where, f"read {self.source}")

    def typed(self, session: Session, number: int) -> Iterator[pa.Table]:
        """Yield the rows of one task's chunks.

        :param session: one that delivers texts.
        """
        from pymysql.cursors import SSCursor

        expressions = ", ".join(as_text(quoted(column.name), column.base) for column in self.rows.columns)
        for chunk in self.shares[number]:
            with session.cursor(SSCursor) as cursor:
                statement = f"SELECT {expressions} FROM {self.source} WHERE {chunk.condition}"
                patiently(partial(cursor.execute, statement))
                while rows := cursor.fetchmany(_ROWS):
                    arrays = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
                    for texts, column in zip(arrays, self.rows.columns, strict=True):
                        if column.base in DATED and self.zero_dates is not None:
                            self.zero_dates.add(count_zero_dates(texts))
                    yield self.rows.typed(arrays)


@dataclass(frozen=True)
class ReadExactly:
    """The one task of an exact full load; its last row holds only the place, as JSON, in :data:`PLACE`.

    :param tables: must have one share.
    """

    server: Server
    tables: ReadTables

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        tables, rows = self.tables, self.tables.rows
        with closing(connect(tables.where, texts=True)) as session, tables.asking():
            place, _clock = begin_snapshot(session, self.server)
            for typed in tables.typed(session, 0):
                yield from typed.append_column(PLACE, pa.nulls(len(typed), pa.string())).to_batches()
        nothing = {
            field.name: pa.nulls(1, field.type)
            for field in rows.typed([pa.array([], pa.string())] * len(rows.columns)).schema
        }
        yield from pa.table({**nothing, PLACE: [json.dumps([place.file, place.pos])]}).to_batches()


def read_tables(
    where: Address,
    table: SourceTable,
    key: tuple[str, ...],
    columns: Iterable[Column],
    shares: tuple[tuple[Chunk, ...], ...],
) -> ReadTables:
    """Return the task that reads some columns of a table.

    :param shares: chunks by number of the task.
    """
    known = {column.name: column.base for column in table.columns}
    text_columns = tuple(TextColumn(c.name, known[c.name], c.type) for c in columns)
    return ReadTables(where, quoted(table.schema, table.name), shares, TypeRows(text_columns, key, convert))


class ExactRows(NamedTuple):
    """Rows of an exact full load.

    :param persisted: cached by Spark.
    :param judged: see :func:`lakecdc.ingest.sources.database.judged`.
    """

    persisted: DataFrame
    judged: DataFrame
    facts: Row
    place: Place
    mark: LoadMark


def exact_rows(spark: SparkSession, task: ReadExactly, epoch: int, time: datetime) -> ExactRows:
    """Read a table by one task, in one transaction.

    :param time: the source's clock when reading began.
    :raises LakecdcError: the task fails.
    """
    rows, of_table = task.tables.rows, f"{PLACE} IS NULL"
    typed = run_tasks(spark.range(0, 1, 1, 1), task, f"{rows.schema}, {PLACE} string")
    persisted, facts = persist_load(typed, f"count_if({of_table})", F.max(PLACE).alias("place"))
    place = Place(*json.loads(facts["place"]))
    mark = LoadMark(order_key(epoch, place.number, 0, RANK_READ), time)
    return ExactRows(persisted, judged(persisted.where(of_table), rows, mark), facts, place, mark)
