"""Full loads: one exported snapshot, tables cut into page ranges, each range copied as CSV by a Spark task.

The snapshot is the one of a slot's creation, so that it and the log meet without gap or overlap: it shows exactly the
transactions whose commit lies before the slot's consistent point. Tables that join later are loaded from the snapshot
of a temporary slot that lives as long as the load.

A load is committed in parts, each with how far it has come, and a later run goes on from there. A snapshot dies with
its session, so that run reads the rest from a new one. Rows in the pages that were read already are found by ``xmin``,
the transaction that wrote them, and read again; what was deleted there is in the log, which is still applied from the
first snapshot on. Page numbers mean nothing once a table was rewritten (``VACUUM FULL``, ``CLUSTER``, ``TRUNCATE``):
then the load begins anew, over the rows that are there.
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
#: size and bytes of what the server sends of a row; a negative size is the end
NextRow = Callable[[], tuple[int, Any]]

_BLOCK_BYTES = 4 * 1024 * 1024
_SIZE = """
SELECT pg_relation_size(%s::oid::regclass), current_setting('block_size')::bigint, row_security_active(%s::oid)
"""
# before version 14 a page range is found by reading the whole table
_TID_RANGE_SCAN = 140000


@dataclass
class Snapshot:
    """An exported snapshot; it lives as long as its session.

    :param name: to import it by.
    :param lsn: the log from here on is what it does not show.
    :param time: the source's clock when it was taken.
    :param xmin: every transaction below this number was over.
    """

    where: Address
    session: Session
    name: str
    lsn: int
    time: datetime
    xmin: int

    def load(self, spark: SparkSession, shares: tuple[tuple[Chunk, ...], ...], rows: TypeRows, epoch: int) -> Load:
        """Return the full load of chunks of a table, shared out by number of the task."""
        read = ReadTables(self.where, self.name, shares, rows)
        mark = LoadMark(order_key(epoch, self.lsn, 0, RANK_READ), self.time)
        return plan_load(spark, rows, mark, read, read, len(shares))

    def close(self) -> None:
        self.session.close()


def take(where: Address, slot: str, *, temporary: bool) -> Snapshot:
    """Create a slot and take the snapshot of its consistent point, after all transactions that are open now.

    :param temporary: the slot is another one beside it, which vanishes with the snapshot.
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
    # the session that exports a snapshot may ask nothing else
    with connect(where) as another:
        _begin(another, created[2])
        (xmin,) = one(another, "SELECT txid_snapshot_xmin(txid_current_snapshot())")
    return Snapshot(where, session, created[2], lsn(created[1]), clock, int(xmin))


def export(where: Address) -> Snapshot:
    """Take a snapshot of now, without a slot: the log that follows it may be gone by then."""
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

    :param end: page after the last; None is the table's end.
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
            # rows know the lower half of the number alone, and age() counts from now on over its turns
            parts.append(f"age(xmin) <= age('{self.written_since % 2**32}'::xid)")
        if self.keys is not None:
            parts.append(f"({self.keys})")
        return " AND ".join(parts) or "true"


def chunks(session: Session, table: SourceTable, chunk_bytes: int) -> list[Chunk]:
    """Cut a table into ranges of about ``chunk_bytes`` of heap; every leaf gets at least one.

    :raises InputError: if row-level security hides rows from the login.
    """
    found: list[Chunk] = []
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
        found += [Chunk(leaf.schema, leaf.name, first, end, leaf.oid) for first, end in zip(bounds, ends, strict=True)]
    return found


@dataclass(frozen=True)
class Progress:
    """How far a full load has come.

    :param xmin: every transaction below this number was over when the oldest snapshot in use was taken.
    :param leaf: oid of the leaf read last; leaves are read in the order of their oids.
    :param page: its first page that was not read; None if all were.
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
    """What one commit of a full load brings.

    :param after: progress of the load then; None if it is complete.
    :param again: rows of these chunks may be in the target already.
    """

    chunks: tuple[Chunk, ...]
    after: Progress | None
    again: bool


def parts(
    session: Session, table: SourceTable, chunk_bytes: int, part_bytes: int, xmin: int, before: Progress | None
) -> Iterator[Part]:
    """Cut the rest of a full load into parts.

    :param session: sees the table as the snapshot does, or later.
    :param chunk_bytes: of heap in a chunk.
    :param part_bytes: of heap in a part; 0 makes one part of all.
    :param xmin: of the snapshot that is read.
    :param before: progress of an earlier run.
    :raises SourceUnavailableError: the table was rewritten since the first part.
    """
    begun, files = before is not None, _files(session, table)
    if before is not None and before.files != _fingerprint(files, before.leaf):
        before = None
    found = _aligned(chunks(session, table, chunk_bytes), before)
    if before is not None:
        done = [chunk for chunk in found if before.covers(chunk)]
        found = found[len(done) :]
        changed = tuple(replace(chunk, written_since=before.xmin) for chunk in done)
        yield Part(changed, replace(before, xmin=xmin) if found else None, again=True)
    size = max(1, part_bytes // chunk_bytes) if part_bytes else max(1, len(found))
    progress = ProgressLog(table.target.table, "chunks", len(found))
    for start in range(0, len(found), size):
        if (start or begun) and _files(session, table) != files:
            raise SourceUnavailableError(
                f"{table.label} was rewritten (VACUUM FULL, CLUSTER, TRUNCATE) while it was being loaded.",
                hint="Run again: its load begins anew.",
            )
        share = tuple(found[start : start + size])
        last = start + size >= len(found)
        after = Progress(xmin, share[-1].leaf, share[-1].end, _fingerprint(files, share[-1].leaf))
        yield Part(share, None if last else after, again=begun)
        # whoever asks for the next part has committed this one
        progress.add(len(share))


def _aligned(found: Sequence[Chunk], before: Progress | None) -> list[Chunk]:
    """Return chunks with a border where an earlier run has stopped, which may have cut them otherwise."""
    aligned: list[Chunk] = []
    for chunk in found:
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

    libpq is asked for the rows: psycopg's own iterator costs a task twice as much as their parsing.

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
    """Join the rows of a COPY, each of which arrives whole, to blocks, so that no row is ever cut."""
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

    :raises pyarrow.ArrowInvalid: a text is not of its column's type.
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
    found: list[pa.RecordBatch] = table.to_batches()
    return found


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
    # Arrow parses these columns to values at once
    kinds = [arrow_type(c.type) if is_parsed_by_arrow(c.base, c.type) else pa.string() for c in columns]
    for block in copied_blocks:
        try:
            batches = parse(block, kinds)
        except pa.ArrowInvalid:
            # Arrow refuses texts that may fit, such as an infinite date where the source says what it means
            batches = parse(block, [pa.string()] * len(columns))
        for batch in batches:
            yield rows.typed(batch.columns)
