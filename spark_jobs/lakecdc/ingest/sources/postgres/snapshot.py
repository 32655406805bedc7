"""Load tables in full from one exported snapshot: cut into page ranges, each range copied as CSV by a Spark task.

The snapshot is that of the slot's creation, so it and the log meet without gap or overlap: it has exactly the
transactions committed before the slot's consistent point. Tables added later are loaded from the snapshot of a
temporary slot that exists during the load.

A load is committed in parts, each with its progress, from which a later run continues. A snapshot ends with its
session, so that run reads the rest from a new one. Rows changed in pages read before are found by ``xmin``, the
transaction that wrote them, and read again; deletes there are in the log, which is still applied from the first
snapshot. Page numbers are void once a table was rewritten (``VACUUM FULL``, ``CLUSTER``, ``TRUNCATE``): then the load
starts over, on top of the existing rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError
from lakecdc.ingest.change import Load
from lakecdc.ingest.formats.text_columns import TypeRows
from lakecdc.ingest.sources.database import LoadMark, fingerprint, plan_load
from lakecdc.ingest.sources.postgres import slots
from lakecdc.ingest.sources.postgres.catalog import SourceTable
from lakecdc.ingest.sources.postgres.connect import Address, Session, connect, one
from lakecdc.ingest.sources.postgres.types import is_parsed_by_arrow
from lakecdc.model.columns import arrow_type
from lakecdc.model.order import RANK_READ, order_key
from lakecdc.model.positions import lsn
from lakecdc.runtime.progress import ProgressLog

T = TypeVar("T")
#: size and bytes of a row as sent by the server; a negative size is the end
NextRow = Callable[[], tuple[int, Any]]

_BLOCK_BYTES = 4 * 1024 * 1024
_SIZE = """
SELECT pg_relation_size(%s::oid::regclass), current_setting('block_size')::bigint, row_security_active(%s::oid)
"""
# before version 14 a page range costs a read of the whole table
_TID_RANGE_SCAN = 140000


@dataclass
class Snapshot:
    """An exported snapshot; it ends with its session.

    :param name: name to import it by.
    :param lsn: place in the log after the snapshot's transactions.
    :param time: the source's clock at the snapshot.
    :param xmin: all transactions below this number had ended.
    """

    where: Address
    session: Session
    name: str
    lsn: int
    time: datetime
    xmin: int

    def load(self, spark: SparkSession, shares: tuple[tuple[Chunk, ...], ...], rows: TypeRows, epoch: int) -> Load:
        """Return the full load of a table's chunks, by number of the task."""
        read = ReadTables(self.where, self.name, shares, rows)
        mark = LoadMark(order_key(epoch, self.lsn, 0, RANK_READ), self.time)
        return plan_load(spark, rows, mark, read, read, len(shares))

    def close(self) -> None:
        self.session.close()


def take(where: Address, slot: str, *, temporary: bool) -> Snapshot:
    """Create a slot and take the snapshot of its consistent point, after all open transactions.

    :param temporary: use a separate slot that ends with the snapshot.
    :raises LakecdcError: if the source refuses.
    """
    from psycopg import sql

    session = connect(where, replication=True)
    lifetime = sql.SQL("TEMPORARY " if temporary else "")
    slot = f"{slot[:40]}_load_{os.getpid()}" if temporary else slot
    statement = sql.SQL("CREATE_REPLICATION_SLOT {} {}LOGICAL pgoutput EXPORT_SNAPSHOT")
    try:
        with slots.bounded_wait(where, session, slot):
            clock = slots.now(session)
            created = session.execute(statement.format(sql.Identifier(slot), lifetime)).fetchone()
    except LakecdcError:
        session.close()
        raise
    assert created is not None
    # the session that exports a snapshot cannot run other statements
    with connect(where) as another:
        _begin(another, created[2])
        (xmin,) = one(another, "SELECT txid_snapshot_xmin(txid_current_snapshot())")
    return Snapshot(where, session, created[2], lsn(created[1]), clock, int(xmin))


def export(where: Address) -> Snapshot:
    """Take a current snapshot without a slot: the log after it may not be kept."""
    session = connect(where)
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    name, end, clock, xmin = one(
        session,
        "SELECT pg_export_snapshot(), pg_current_wal_flush_lsn()::text, clock_timestamp(), "
        "txid_snapshot_xmin(txid_current_snapshot())",
    )
    return Snapshot(where, session, name, lsn(end), clock, int(xmin))


def _begin(session: Session, name: str) -> None:
    from psycopg import sql

    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    session.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))


@dataclass(frozen=True)
class Chunk:
    """A range of pages of one table.

    :param end: page after the last one; None is the table's end.
    :param leaf: oid of the table that holds the pages.
    :param written_since: only rows written by this transaction or a later one; None is all.
    :param keys: only rows that meet this SQL condition on their keys; None is all.
    """

    schema: str
    table: str
    first: int = 0
    end: int | None = None
    leaf: int = 0
    written_since: int | None = None
    keys: str | None = None

    def condition(self) -> str:
        """Return the SQL condition of the rows."""
        parts = [f"ctid >= '({self.first},0)'::tid"] if self.first else []
        if self.end is not None:
            parts.append(f"ctid < '({self.end},0)'::tid")
        if self.written_since is not None:
            # rows have only the lower half of the number, and age() handles its wraparound
            parts.append(f"age(xmin) <= age('{self.written_since % 2**32}'::xid)")
        if self.keys is not None:
            parts.append(f"({self.keys})")
        return " AND ".join(parts) or "true"


def chunks(session: Session, table: SourceTable, chunk_bytes: int) -> list[Chunk]:
    """Cut a table into ranges of about ``chunk_bytes`` of heap; every leaf gets at least one.

    :raises InputError: row-level security hides rows from the login.
    """
    all_chunks: list[Chunk] = []
    ranged = session.info.server_version >= _TID_RANGE_SCAN
    for leaf in table.leaves:
        size, page, hidden = one(session, _SIZE, leaf.oid, leaf.oid)
        if hidden:
            raise InputError(
                f"Row-level security of {leaf.schema}.{leaf.name} hides rows from the login, but the log has them.",
                hint="Run ALTER ROLE … BYPASSRLS at the source, or let the table's owner log in.",
            )
        pages, step = size // page, max(1, chunk_bytes // page)
        bounds = list(range(0, pages, step)) if ranged and pages else [0]
        ends: list[int | None] = [*bounds[1:], None]
        all_chunks += [
            Chunk(leaf.schema, leaf.name, first, end, leaf.oid) for first, end in zip(bounds, ends, strict=True)
        ]
    return all_chunks


@dataclass(frozen=True)
class Progress:
    """The progress of a full load.

    :param xmin: all transactions below this number had ended at the oldest snapshot in use.
    :param leaf: oid of the leaf read last; leaves are read in the order of their oids.
    :param page: its first unread page; None if all were read.
    :param files: fingerprint of the files that hold the leaves read so far.
    """

    xmin: int
    leaf: int
    page: int | None
    files: str

    def covers(self, chunk: Chunk) -> bool:
        if chunk.leaf != self.leaf:
            return chunk.leaf < self.leaf
        return self.page is None or (chunk.end is not None and chunk.end <= self.page)


@dataclass(frozen=True)
class Part:
    """One part of a full load, committed at once.

    :param after: progress of the load after the part; None if it is complete.
    :param again: the target may already have rows of these chunks.
    """

    chunks: tuple[Chunk, ...]
    after: Progress | None
    again: bool


def parts(
    session: Session, table: SourceTable, chunk_bytes: int, part_bytes: int, xmin: int, before: Progress | None
) -> Iterator[Part]:
    """Cut the rest of a full load into parts.

    :param session: sees the table as the snapshot does, or later.
    :param chunk_bytes: bytes of heap in a chunk.
    :param part_bytes: bytes of heap in a part; 0 makes one part of all.
    :param xmin: ``xmin`` of the snapshot.
    :param before: progress of an earlier run.
    :raises SourceUnavailableError: the table was rewritten since the first part.
    """
    begun, files = before is not None, _files(session, table)
    if before is not None and before.files != _fingerprint(files, before.leaf):
        before = None
    rest = _aligned(chunks(session, table, chunk_bytes), before)
    if before is not None:
        done = [chunk for chunk in rest if before.covers(chunk)]
        rest = rest[len(done) :]
        changed = tuple(replace(chunk, written_since=before.xmin) for chunk in done)
        yield Part(changed, replace(before, xmin=xmin) if rest else None, again=True)
    size = max(1, part_bytes // chunk_bytes) if part_bytes else max(1, len(rest))
    progress = ProgressLog(table.target.table, "chunks", len(rest))
    for start in range(0, len(rest), size):
        if (start or begun) and _files(session, table) != files:
            raise SourceUnavailableError(
                f"{table.label} was rewritten (VACUUM FULL, CLUSTER, TRUNCATE) while it was being loaded.",
                hint="Run again: its load starts over.",
            )
        share = tuple(rest[start : start + size])
        last = start + size >= len(rest)
        after = Progress(xmin, share[-1].leaf, share[-1].end, _fingerprint(files, share[-1].leaf))
        yield Part(share, None if last else after, again=begun)
        # the caller asks for the next part after committing this one
        progress.add(len(share))


def _aligned(all_chunks: Sequence[Chunk], before: Progress | None) -> list[Chunk]:
    """Split chunks where an earlier run stopped, which may have used other chunks."""
    aligned: list[Chunk] = []
    for chunk in all_chunks:
        page = before.page if before is not None and before.leaf == chunk.leaf else None
        if page is not None and chunk.first < page and (chunk.end is None or page < chunk.end):
            aligned += [replace(chunk, end=page), replace(chunk, first=page)]
        else:
            aligned.append(chunk)
    return aligned


def _files(session: Session, table: SourceTable) -> list[tuple[int, int | None]]:
    """Return the file of every leaf; a table that is rewritten gets a new one."""
    statement = "SELECT leaf::bigint, pg_relation_filenode(leaf)::bigint FROM unnest(%s::oid[]) leaf ORDER BY 1"
    oids = [leaf.oid for leaf in table.leaves]
    return [(leaf, file) for leaf, file in session.execute(statement, (oids,))]


def _fingerprint(files: Sequence[tuple[int, int | None]], last: int) -> str:
    return fingerprint([file for file in files if file[0] <= last])


def copied(session: Session, statement: bytes, take: Callable[[NextRow], Iterator[T]]) -> Iterator[T]:
    """Yield the result of a COPY TO STDOUT.

    The rows come from libpq: psycopg's iterator costs twice as much as parsing them.

    :raises psycopg.Error: if the source refuses.
    """
    from psycopg import errors, pq

    connection = session.pgconn
    begun = connection.exec_(statement)
    if begun.status != pq.ExecStatus.COPY_OUT:
        raise errors.error_from_result(begun)
    yield from take(partial(connection.get_copy_data, 0))
    ended = connection.get_result()
    if ended is not None and ended.status != pq.ExecStatus.COMMAND_OK:
        raise errors.error_from_result(ended)
    while connection.get_result() is not None:
        pass


def blocks(next_row: NextRow) -> Iterator[bytearray]:
    """Join the complete rows of a COPY to blocks."""
    gathered = bytearray()
    while True:
        size, row = next_row()
        if size < 0:
            break
        gathered += row
        if len(gathered) >= _BLOCK_BYTES:
            yield gathered
            gathered = bytearray()
    if gathered:
        yield gathered


def parse(block: bytes | bytearray, types: Sequence[pa.DataType]) -> list[pa.RecordBatch]:
    """Parse Postgres' CSV: null is empty, the empty string is quoted, values may hold line ends.

    :raises pyarrow.ArrowInvalid: a text does not have its column's type.
    """
    from pyarrow import csv

    names = [f"c{i}" for i in range(len(types))]
    read = csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
    convert = csv.ConvertOptions(
        column_types=dict(zip(names, types, strict=True)),
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    form = csv.ParseOptions(newlines_in_values=True, double_quote=True, ignore_empty_lines=False)
    table = csv.read_csv(pa.BufferReader(block), read_options=read, parse_options=form, convert_options=convert)
    batches: list[pa.RecordBatch] = table.to_batches()
    return batches


@dataclass(frozen=True)
class ReadTables:
    """Task of a full load; see :class:`lakecdc.ingest.change.Load`.

    :param snapshot: name to import it by.
    :param shares: chunks by number of the task.
    """

    where: Address
    snapshot: str
    shares: tuple[tuple[Chunk, ...], ...]
    rows: TypeRows

    def __call__(self, number: int) -> Iterator[pa.Table]:
        with closing(connect(self.where)) as session:
            _begin(session, self.snapshot)
            for chunk in self.shares[number]:
                yield from typed(self._copied(session, chunk), self.rows)

    def _copied(self, session: Session, chunk: Chunk) -> Iterator[bytearray]:
        from psycopg import sql

        statement = sql.SQL("COPY (SELECT {} FROM ONLY {} WHERE {}) TO STDOUT (FORMAT csv)").format(
            sql.SQL(", ").join(sql.Identifier(column.name) for column in self.rows.columns),
            sql.Identifier(chunk.schema, chunk.table),
            sql.SQL(chunk.condition()),
        )
        return copied(session, statement.as_bytes(session), blocks)


def typed(copied_blocks: Iterable[bytearray], rows: TypeRows) -> Iterator[pa.Table]:
    """Yield the rows of blocks of Postgres' CSV."""
    columns = rows.columns
    # Arrow parses these columns directly
    kinds = [arrow_type(c.type) if is_parsed_by_arrow(c.base, c.type) else pa.string() for c in columns]
    for block in copied_blocks:
        try:
            batches = parse(block, kinds)
        except pa.ArrowInvalid:
            # Arrow refuses texts that may fit, such as infinite dates with a configured meaning
            batches = parse(block, [pa.string()] * len(columns))
        for batch in batches:
            yield rows.typed(batch.columns)
