"""Decode messages of Postgres' output plugin ``pgoutput``, protocol version 1, to rows of Arrow batches.

Layouts: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. A value is text as the type's
output function writes it; an update leaves out large values it did not touch (``u``), so a row may have ``open``
columns. This module uses neither Postgres' catalog nor Spark.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.sources.log.summary import EVENTS
from lakecdc.ingest.sources.postgres.pgoutput_tuples import (
    UNCHANGED,
    ProtocolError,
    Tuples,
    Values,
    read_tuple,
    write_tuple,
)
from lakecdc.ingest.sources.postgres.reading import Bounds, LogTable, Relation, RelationColumn, Summary

#: microseconds between 1970 and Postgres' own epoch, 2000
EPOCH_MICROS = 946_684_800_000_000
_NAMES = [column.split(" ")[0] for column in EVENTS.split(", ")]
_BATCH_ROWS = 20_000
_BATCH_BYTES = 16 * 1024 * 1024

#: begin and commit
_ALONE = b"BC"
_BEGIN = struct.Struct(">xqqI")
_COMMIT = struct.Struct(">xBqqq")


def read_relation(message: bytes, version: int) -> Relation:
    oid = int.from_bytes(message[1:5], "big")
    schema, at = _text(message, 5)
    name, at = _text(message, at)
    identity = chr(message[at])
    count = int.from_bytes(message[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        flags = message[at]
        column, at = _text(message, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", message, at)
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
        at += 8
    return Relation(oid, version, schema or "pg_catalog", name, identity, tuple(columns))


class Decoder:
    """Decode messages to rows; one instance reads one stretch of the log, from its first transaction to its last.

    :param log_tables: the tables to read, by oid; events of others are skipped.
    :param bounds: limits; a transaction is never cut. Without limits, the read ends with the messages.
    """

    def __init__(self, log_tables: Mapping[int, LogTable], bounds: Bounds | None = None) -> None:
        self.summary = Summary()
        self._log_tables, bounds = log_tables, bounds or Bounds()
        self._most_bytes = bounds.bytes or float("inf")
        self._most_seconds = bounds.seconds or float("inf")
        self._deadline = 0.0
        # by the relation's bytes in messages
        self._layouts: dict[bytes, _Layout] = {}
        self._rows = _Rows()
        self._commit_lsn = self._commit_micros = self._ordinal = self._xid = 0

    def batches(self, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Decode messages in log order to batches of ``log.summary.EVENTS`` of bounded size.

        :raises ProtocolError: a message belongs to another protocol version.
        """
        take = {
            0x42: self._begin,
            0x43: self._commit,
            0x52: self._relation,
            0x49: self._insert,
            0x55: self._update,
            0x44: self._delete,
            0x54: self._truncate,
        }
        for run in _runs(messages):
            self.summary.messages += len(run)
            kind = run[0][0]
            handler = take.get(kind)
            if handler is not None:
                with self._reading():
                    handler(run)
                if self._rows.count >= _BATCH_ROWS or self._rows.size >= _BATCH_BYTES:
                    yield self._flush()
                if self.summary.cut:
                    break
            elif kind not in b"OYM":  # origin, type, logical message
                raise ProtocolError(f"A message of kind {chr(kind)!r} is not part of protocol version 1.")
        if self._rows.count:
            yield self._flush()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert errors of unreadable bytes to errors that name their place in the log."""
        try:
            yield
        except (struct.error, LookupError, ValueError, OverflowError) as error:
            reason = error if isinstance(error, ProtocolError) else repr(error)
            place = f"{self._commit_lsn >> 32:X}/{self._commit_lsn & 0xFFFFFFFF:X}"
            raise ProtocolError(f"A message of the log up to the commit at {place} cannot be read: {reason}") from error

    def _flush(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, _Rows()
        self._rows.begin(self._commit_lsn, self._commit_micros)
        self.summary.bytes += rows.size
        with self._reading():
            batch = rows.batch()
        if batch.column("open").null_count < batch.num_rows:
            open_tables = pc.unique(batch.column("relation").filter(batch.column("open").is_valid())).to_pylist()
            self.summary.open = sorted({*self.summary.open, *open_tables})
        for layout, kind, number in rows.runs:
            self.summary.count(layout.relation.table, kind, number)
        return batch

    def _begin(self, run: Sequence[bytes]) -> None:
        self._commit_lsn, micros, self._xid = _BEGIN.unpack(run[0])
        self._commit_micros = micros + EPOCH_MICROS
        self._ordinal = 0
        # time that the server takes before the first message does not count: the next read would wait again
        self._deadline = self._deadline or time.monotonic() + self._most_seconds
        self._rows.begin(self._commit_lsn, self._commit_micros)

    def _commit(self, run: Sequence[bytes]) -> None:
        _flags, _lsn, self.summary.end_lsn, micros = _COMMIT.unpack(run[0])
        self.summary.commit_micros = micros + EPOCH_MICROS
        size = self.summary.bytes + self._rows.size
        # a read without rows must go on: the next one would start at the same place
        self.summary.cut = size >= self._most_bytes or (size > 0 and time.monotonic() >= self._deadline)

    def _relation(self, run: Sequence[bytes]) -> None:
        for message in run:
            oid = int.from_bytes(message[1:5], "big")
            log_table = self._log_tables.get(oid)
            if log_table is None:
                continue
            known = self._layouts.get(message[1:5])
            relation = read_relation(message, known.relation.version if known else 0)
            if known and relation == known.relation:
                continue
            if known:
                relation = read_relation(message, known.relation.version + 1)
            layout = self._layouts[message[1:5]] = _Layout(relation, log_table)
            self.summary.relations.append(replace(relation, key=layout.key))

    def _open(self, run: Sequence[bytes]) -> _Layout | None:
        """Count the transaction's events; return the layout of the messages' table, None if it is not read."""
        self._ordinal += len(run)
        layout = self._layouts.get(run[0][1:5])
        return layout if layout and self._commit_lsn >= layout.start else None

    def _insert(self, run: Sequence[bytes]) -> None:
        layout = self._open(run)
        if layout:
            self._rows.add_new(layout, "c", self._ordinal, run)

    def _update(self, run: Sequence[bytes]) -> None:
        layout = self._open(run)
        if layout and run[0][5] == 0x4E:
            self._rows.add_new(layout, "u", self._ordinal, run)
        elif layout:
            for ordinal, message in enumerate(run, self._ordinal - len(run) + 1):
                self._update_with_old(layout, ordinal, message)

    def _update_with_old(self, layout: _Layout, ordinal: int, message: bytes) -> None:
        old, end = read_tuple(message, 6)
        new, _end = read_tuple(message, end + 1)
        layout.fill(new, old, message[5] == 0x4F)
        rows = self._rows
        if layout.moved(new, old):
            rows.add_old(layout, "d", ordinal, (message,))
            rows.add_moved(layout, ordinal, write_tuple(new), message)
        else:
            rows.add_new(layout, "u", ordinal, (write_tuple(new),), 0)

    def _delete(self, run: Sequence[bytes]) -> None:
        layout = self._open(run)
        if layout:
            self._rows.add_old(layout, "d", self._ordinal, run)

    def _truncate(self, run: Sequence[bytes]) -> None:
        for message in run:
            self._ordinal += 1
            (count,) = struct.unpack_from(">I", message, 1)
            for oid in struct.unpack_from(f">{count}I", message, 6):
                log_table = self._log_tables.get(oid)
                if log_table and self._commit_lsn >= log_table.start:
                    self.summary.count(oid, "t", 1)
                    place = (self._commit_lsn, self._ordinal, self._commit_micros, self._xid)
                    self.summary.truncates[oid] = place


def _runs(messages: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group consecutive messages of one kind and table, so that a large statement is decoded at once.

    Their first six bytes are equal: kind, table, and the kind of the first tuple. A begin or a commit is always alone.
    """
    run: list[bytes] = []
    head, size = b"", 0
    for message in messages:
        if message[:6] == head and size < _BATCH_BYTES and len(run) < _BATCH_ROWS:
            run.append(message)
            size += len(message)
            continue
        if run:
            yield run
        run, head, size = [message], message[:6], len(message)
        if message[0] in _ALONE:
            yield run
            run, head = [], b""
    if run:
        yield run


class _Layout:
    def __init__(self, relation: Relation, log_table: LogTable) -> None:
        self.relation = relation
        self.start = log_table.start
        names = [column.name for column in relation.columns]
        self.names = [name if name not in log_table.excluded else None for name in names]
        self.key = log_table.key_places(names)
        self._identity = [i for i, column in enumerate(relation.columns) if column.identity]

    def fill(self, new: Values, old: Values, full: bool) -> None:
        """Fill unchanged values from the old tuple, which has all columns or only those of the identity."""
        for i in range(len(new)) if full else self._identity:
            if new[i] is UNCHANGED:
                new[i] = old[i]

    def moved(self, new: Values, old: Values) -> bool:
        return any(new[i] != old[i] for i in self.key)


class _Rows:
    """Buffered rows of an Arrow batch: facts by row, and raw TupleData that is split for all rows at once."""

    def __init__(self) -> None:
        self.count = 0
        #: layout, kind and number of consecutive rows
        self.runs: list[tuple[_Layout, str, int]] = []
        self._ordinals: list[int] = []
        self.new, self.old = Tuples(), Tuples()
        self._moved: list[int] = []
        # first row, commit position and time of each transaction
        self._transactions: list[tuple[int, int, int]] = []

    @property
    def size(self) -> int:
        return self.new.bytes + self.old.bytes

    def begin(self, commit_lsn: int, commit_micros: int) -> None:
        self._transactions.append((self.count, commit_lsn, commit_micros))

    def add_new(self, layout: _Layout, kind: str, last: int, messages: Sequence[bytes], at: int = 6) -> None:
        """Add rows, up to the ordinal ``last``, whose TupleData begins at ``at``."""
        self.new.add(self.count, messages, at)
        self._add(layout, kind, last, len(messages))

    def add_old(self, layout: _Layout, kind: str, last: int, messages: Sequence[bytes]) -> None:
        """Add rows with only old values."""
        self.old.add(self.count, messages, 6)
        self._add(layout, kind, last, len(messages))

    def add_moved(self, layout: _Layout, ordinal: int, new: bytes, message: bytes) -> None:
        """Add an update that changes the key, from the TupleData ``new`` and the message with the old values."""
        self._moved.append(self.count)
        self.new.add(self.count, (new,), 0)
        self.old.add(self.count, (message,), 6)
        self._add(layout, "u", ordinal, 1)

    def _add(self, layout: _Layout, kind: str, last: int, count: int) -> None:
        self.runs.append((layout, kind, count))
        self._ordinals += range(last - count + 1, last + 1)
        self.count += count

    def batch(self) -> pa.RecordBatch:
        rows = self.count
        layouts, kinds, counts = zip(*self.runs, strict=True)
        relations = np.array([(layout.relation.table, layout.relation.version) for layout in layouts], np.int64)
        oids, versions = np.repeat(relations, counts, axis=0).T
        firsts, *places = np.array(self._transactions, np.int64).T
        lsns, micros = (np.repeat(values, np.diff(firsts, append=rows)) for values in places)
        moved = np.zeros(rows, np.bool_)
        moved[self._moved] = True
        new, unchanged = self.new.split(rows)
        old, _unchanged = self.old.split(rows)
        # a kind has one character
        kind = pa.array(np.repeat(np.array(kinds), counts), pa.string())
        arrays = [
            *(pa.array(oids), pa.array(versions.astype(np.int32)), kind),
            *(pa.array(lsns), pa.array(np.array(self._ordinals, np.int64)), pa.array(micros)),
            *(new, self._opened(unchanged), old, pa.array(moved), pa.nulls(rows, pa.string())),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=_NAMES)

    def _opened(self, unchanged: list[tuple[int, int]]) -> pa.Array:
        """Return the names of the columns that each row leaves open, from the row and place of each."""
        names = pa.list_(pa.string())
        if not unchanged:
            return pa.nulls(self.count, names)
        by_row: dict[int, list[str]] = {}
        layouts = [layout for layout, _kind, count in self.runs for _ in range(count)]
        for row, place in unchanged:
            name = layouts[row].names[place]
            if name is not None:
                by_row.setdefault(row, []).append(name)
        rows = range(self.count)
        return pa.array([by_row.get(row) for row in rows], names) if by_row else pa.nulls(len(rows), names)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
