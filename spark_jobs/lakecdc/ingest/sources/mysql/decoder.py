"""Decode events of the binary log to rows of Arrow batches, without Spark or a server.

Layouts: MySQL's source documentation, namespace ``binary_log``; MariaDB's Knowledge Base, "Replication Protocol". An
unreadable event that may have rows stops the reading; it is never skipped.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from lakecdc.ingest.sources.mysql import events as kinds
from lakecdc.ingest.sources.mysql import statements
from lakecdc.ingest.sources.mysql.alter_table import Alteration
from lakecdc.ingest.sources.mysql.column_names import ColumnNames
from lakecdc.ingest.sources.mysql.reading import Limits, LogTable, Relation, Summary
from lakecdc.ingest.sources.mysql.rows import UNREADABLE, Image, Rows, UnreadableError
from lakecdc.ingest.sources.mysql.server import Server
from lakecdc.ingest.sources.mysql.table_map import LayoutError, LogColumn, length, read_columns, table_name
from lakecdc.ingest.sources.mysql.values import Codec
from lakecdc.model.positions import Place

_BATCH_ROWS = 20_000
_BATCH_BYTES = 16 * 1024 * 1024
_HEADER = struct.Struct("<IBIIIH")
_STANDALONE, _GROUP_COMMIT, _DDL = 0x01, 0x02, 0x20
#: an ALTER TABLE that begins, or is rolled back (binlog_alter_two_phase)
_NO_ALTER = 0x02 | 0x08


class LogError(ValueError):
    """The log cannot be read beyond this event."""


class _Layout:
    """The layout of a table's rows in one Table_map event."""

    def __init__(
        self, table: int, version: int, log_table: LogTable, columns: tuple[LogColumn, ...], numbers: Sequence[int]
    ) -> None:
        self.table, self.version, self.start, self.columns = table, version, log_table.start, columns
        names = [column.name for column in columns]
        key = log_table.key_places(names, numbers)
        self.absent = next((name for name, place in key.items() if place is None), None)
        self.key = [place for place in key.values() if place is not None]
        self.included = [name not in log_table.excluded for name in names]
        self.bitmap = (1 << len(columns)) - 1
        self.keyed = bool(log_table.key)
        self.all = [(c.codec.size, c.codec.prefix, own) for c, own in zip(columns, self.included, strict=True)]
        keys = frozenset(self.key)
        self.keys = [(c.codec.size, c.codec.prefix, place in keys) for place, c in enumerate(columns)]
        self.new = [c.codec if own else None for c, own in zip(columns, self.included, strict=True)]
        self.old: list[Codec | None] = [columns[place].codec for place in self.key]
        if not self.keyed:
            # all columns identify a row
            self.key, self.keys, self.old = list(range(len(columns))), self.all, self.new


class Decoder:
    """Decode events to rows; one instance reads one stretch of the log.

    :param begin: place between two transactions.
    """

    def __init__(self, log_tables: Mapping[int, LogTable], server: Server, begin: Place, limits: Limits) -> None:
        self.summary = Summary(begin.file, begin.pos)
        self.done = begin.number >= limits.stop
        self._log_tables, self._charsets, self._limits = log_tables, server.charsets, limits
        self._mariadb, self._fold = server.mariadb, server.fold
        self._tail = 4 if server.checksum else 0
        self._tables = {self._folded(w.schema, w.table): number for number, w in log_tables.items()}
        self._columns = {
            number: ColumnNames(dict(w.columns), dict(w.types), w.excluded) for number, w in log_tables.items()
        }
        self._layouts: dict[bytes, _Layout | None] = {}
        self._by_id: dict[int, _Layout | None] = {}
        self._relations: dict[int, Relation] = {}
        self._rows: dict[_Layout, Rows] = {}
        self._buffered = self._buffered_bytes = 0
        self._deadline = 0.0
        self._file, self._at = begin.file, begin.pos
        self._gtid, self._seconds = "", 0
        # inside a group of events, and inside one that COMMIT, XID or ROLLBACK ends
        self._inside = self._begun = False
        # MariaDB may log an ALTER TABLE when it begins and again when it ends
        self._unfinished = False
        self._ordinal = 0
        self._touched: set[int] = set()

    def batches(self, events: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Decode events in log order, each with its header, until they end or a limit is reached.

        :return: batches of ``log.summary.EVENTS`` of bounded size, each of one table.
        :raises LogError: an event cannot be read.
        """
        for event in events:
            # time that the server takes before the first event does not count: the next read would wait again
            self._deadline = self._deadline or time.monotonic() + (self._limits.seconds or float("inf"))
            try:
                self._take(event)
            except UNREADABLE as error:
                if isinstance(error, LogError):
                    raise
                raise LogError(f"The event at {self._file}:{self._at} cannot be read: {error!r}.") from error
            if self._buffered >= _BATCH_ROWS or self._buffered_bytes >= _BATCH_BYTES:
                yield from self._flush()
            if self.done:
                break
        yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        by_layout, self._rows = self._rows, {}
        self._buffered = self._buffered_bytes = 0
        for layout, rows in by_layout.items():
            try:
                yield rows.batch()
            except UnreadableError as error:
                self.summary.lost.setdefault(layout.table, str(error))
            if rows.zero_dates:
                zero_dates = self.summary.zero_dates
                zero_dates[layout.table] = zero_dates.get(layout.table, 0) + rows.zero_dates

    def _take(self, event: bytes) -> None:
        seconds, kind, server, size, end, flags = _HEADER.unpack_from(event)
        self.summary.bytes += len(event)
        artificial = not end or (kind == kinds.ROTATE and not seconds)
        start = self._at
        if not artificial:
            start = self._advance(end, size)
        body_end = len(event) - self._tail
        if what := kinds.unreadable(kind, flags):
            raise LogError(f"The log has {what} at {self._file}:{start}, which lakecdc cannot read.")
        if kind in kinds.ROWS:
            self._row_event(event, body_end, kind, start, seconds)
        elif kind == kinds.TABLE_MAP:
            self._inside = True
            self._table_map(event[19:body_end], start)
        elif kind in (kinds.QUERY, kinds.LOAD_QUERY):
            self._query(event, body_end, start, seconds)
        elif kind in (kinds.XID, kinds.XA_PREPARE):
            if kind == kinds.XA_PREPARE and not event[19]:
                self._refuse_touched("was changed by an XA transaction, whose outcome is later in the log")
            self._end(seconds)
        elif kind in kinds.GTIDS:
            self._begin(event, kind, server, body_end)
        elif kind == kinds.FORMAT:
            # its last five bytes are the checksum kind of all events, and its own checksum
            self._tail = 4 if event[-5] == 1 else 0
        elif kind == kinds.ROTATE:
            self._rotate(event[27:body_end].decode())
        if not self._inside:
            self._boundary()

    def _advance(self, end: int, size: int) -> int:
        """Advance to an event's end, of which the log has 32 bits; return its start."""
        end |= self._at & ~0xFFFFFFFF
        self._at = end if end >= self._at else end + (1 << 32)
        return self._at - size

    def _rotate(self, file: str) -> None:
        if file != self._file:
            self._file, self._at = file, 4
            # table numbers restart with the server, which then begins a new file
            self._by_id.clear()
            if self._inside:
                # the server crashed within the transaction and rolled it back
                self._refuse_touched("was changed by a transaction without an end in the source's log")
                self._inside = self._begun = False

    def _boundary(self) -> None:
        summary = self.summary
        summary.file, summary.pos = self._file, self._at
        if self._seconds:
            summary.gtid, summary.seconds = self._gtid, self._seconds
        limits = self._limits
        full = summary.total >= limits.events or 0 < limits.bytes <= summary.row_bytes
        # a read without rows goes on: quiet stretches are fast
        full = full or (summary.total > 0 and time.monotonic() >= self._deadline)
        self.done = full or summary.place.number >= limits.stop

    # -- transactions -----------------------------------------------------------------------------------------

    def _begin(self, event: bytes, kind: int, server: int, end: int) -> None:
        self._inside, self._ordinal, self._unfinished, self._begun = True, 0, False, False
        self._touched.clear()
        self._gtid = kinds.gtid_of(event, kind, server)
        if kind == kinds.MARIADB:
            # after sequence and domain
            flags = event[31]
            self._begun = not flags & _STANDALONE
            more = 32 + (8 if flags & _GROUP_COMMIT else 0)
            self._unfinished = bool(flags & _DDL and more < end and event[more] & _NO_ALTER)

    def _end(self, seconds: int) -> None:
        self._inside = self._begun = False
        self._seconds = seconds
        self._by_id.clear()

    def _query(self, event: bytes, end: int, start: int, seconds: int) -> None:
        schema, statement, mode = kinds.read_statement(event, end)
        first, second = statements.first_words(statement)
        if first == "BEGIN" or (first, second) in (("START", "TRANSACTION"), ("XA", "START")):
            self._inside = self._begun = True
            self._ordinal = 0
            self._touched.clear()
            return
        if self._begun and first == "ROLLBACK":
            # also for a rollback to a savepoint, because the rows that it takes back are in the log
            self._refuse_touched("was changed by a transaction that the log ends with ROLLBACK")
        if self._begun and first in ("COMMIT", "ROLLBACK") and second != "TO":
            self._end(seconds)
        else:
            if not self._unfinished:
                self._statement(statement.decode("utf-8", "replace"), schema, mode, start, seconds)
            if not self._begun:
                self._end(seconds)

    def _statement(self, statement: str, schema: str, mode: int, start: int, seconds: int) -> None:
        position = Place(self._file, start).number
        for effect in statements.effects(statement, schema, mode):
            for number in self._numbers(effect.schema, effect.table):
                if position < self._log_tables[number].start:
                    continue
                if effect.kind == "lost":
                    self.summary.lost.setdefault(number, f"{effect.detail} at {self._file}:{start}")
                elif effect.kind == "altered":
                    self._alter(number, effect.change, position, f"{self._file}:{start}")
                else:
                    self._count(number, "t")
                    self.summary.truncates[number] = (position, self._ordinal, seconds)

    def _alter(self, number: int, change: Alteration, position: int, where: str) -> None:
        summary, columns = self.summary, self._columns[number]
        why = columns.alter(change)
        log_table = self._log_tables[number]
        if position < log_table.loaded:
            if any(r.old != r.new for r in change.renamed):
                why = why or "renamed columns while it was being loaded"
            elif any(columns.numbers.get(name, of) != of for name, of in log_table.columns):
                why = why or "recreated a column while it was being loaded"
        if why:
            summary.lost.setdefault(number, f"{why} at {where}")
        summary.altered.append(number)
        summary.columns[number], summary.added[number] = columns.numbers, columns.added
        # later rows may have the same layout and mean other columns
        self._layouts.clear()

    def _numbers(self, schema: str | None, table: str | None) -> list[int]:
        if schema is None:
            return [*self._log_tables]
        if table is None:
            return [n for n, w in self._log_tables.items() if self._folded(w.schema, "") == self._folded(schema, "")]
        number = self._tables.get(self._folded(schema, table))
        return [] if number is None else [number]

    def _folded(self, schema: str, table: str) -> tuple[str, str]:
        return (schema.lower(), table.lower()) if self._fold else (schema, table)

    def _refuse_touched(self, why: str) -> None:
        for number in self._touched:
            self.summary.lost.setdefault(number, why)

    # -- rows -------------------------------------------------------------------------------------------------

    def _table_map(self, event: bytes, start: int) -> None:
        number, body = int.from_bytes(event[:6], "little"), event[8:]
        if body not in self._layouts:
            schema, name, at = table_name(body)
            table = self._tables.get(self._folded(schema, name))
            if table is not None and Place(self._file, start).number < self._log_tables[table].start:
                # the table has these rows already, under older column names
                self._by_id[number] = None
                return
            self._layouts[body] = None if table is None else self._layout(body, at, table)
        self._by_id[number] = self._layouts[body]

    def _layout(self, body: bytes, at: int, number: int) -> _Layout | None:
        log_table, names = self._log_tables[number], self._columns[number]
        try:
            columns = read_columns(body, at, self._charsets, lambda: names.unnamed(log_table.now), self._mariadb)
        except LayoutError as error:
            self.summary.lost.setdefault(number, f"has rows in the log that cannot be read: {str(error).rstrip('.')}")
            return None
        except UNREADABLE as error:
            self.summary.lost.setdefault(number, f"has columns in the log that cannot be read: {error}")
            return None
        if why := names.described([column.name for column in columns]):
            self.summary.lost.setdefault(number, why)
            return None
        self.summary.columns[number] = names.numbers
        described = tuple((c.name, c.type.base, c.type.spark) for c in columns)
        numbers = tuple(names.numbers[column.name] for column in columns)
        known = self._relations.get(number)
        if known is None or (known.columns, known.numbers) != (described, numbers):
            known = Relation(number, known.version + 1 if known else 0, described, numbers)
            self._relations[number] = known
            self.summary.relations.append(known)
        return _Layout(number, known.version, log_table, columns, numbers)

    def _row_event(self, event: bytes, end: int, kind: int, start: int, seconds: int) -> None:
        self._inside = True
        layout = self._by_id.get(int.from_bytes(event[19:25], "little"))
        position = Place(self._file, start).number
        if layout is None or position < layout.start or layout.table in self.summary.lost:
            return
        self._touched.add(layout.table)
        try:
            self._read_rows(layout, event, end, kind, start, (position, seconds))
        except LogError:
            raise
        except UNREADABLE as error:
            # the event was decoded in part
            self._rows.pop(layout, None)
            self.summary.lost.setdefault(layout.table, f"has rows at {self._file}:{start} that cannot be read: {error}")

    def _read_rows(
        self, layout: _Layout, event: bytes, end: int, kind: int, start: int, place: tuple[int, int]
    ) -> None:
        op, extra = kinds.ROWS[kind]
        at = 27 + (int.from_bytes(event[27:29], "little") if extra else 0)
        count, at = length(event, at)
        width = (count + 7) // 8
        images = 2 if op == "u" else 1
        present = [int.from_bytes(event[at + i * width : at + (i + 1) * width], "little") for i in range(images)]
        at += width * images
        if layout.absent or any(bitmap & layout.bitmap != layout.bitmap for bitmap in present):
            what = f"lack the key column {layout.absent!r}" if layout.absent else "are not whole (binlog_row_image)"
            raise LayoutError(f"they {what}")
        rows = self._rows.get(layout)
        if rows is None:
            rows = self._rows[layout] = Rows(layout.table, layout.version, layout.new, layout.old)
        rows.begin(f"{self._file}:{start}")
        if op == "u":
            ordinal = self._read_updates(layout, rows, event, (at, end, width), place)
        else:
            ordinal, plan = self._ordinal, layout.all if op == "c" else layout.keys
            while at < end:
                ordinal += 1
                image, at = _image(plan, event, at, width)
                if op == "c":
                    rows.new += image
                else:
                    rows.old += [image[k] for k in layout.key]
            rows.add(op, place, range(self._ordinal + 1, ordinal + 1))
        count = ordinal - self._ordinal
        self._count(layout.table, op, count)
        self._buffered += count
        self._buffered_bytes += len(event)
        self.summary.row_bytes += len(event)
        self._ordinal = ordinal
        if 0 < self._limits.transaction < ordinal:
            raise LogError(
                f"A transaction at {self._file} has more than {self._limits.transaction} row events "
                "(source.max_transaction_events)."
            )

    def _read_updates(
        self, layout: _Layout, rows: Rows, event: bytes, within: tuple[int, int, int], place: tuple[int, int]
    ) -> int:
        """Read the pairs of images of an event; return the ordinal of the last row.

        :param within: start and end of the images, and the size of the null bitmap.
        """
        at, end, width = within
        ordinal = stayed = self._ordinal
        while at < end:
            ordinal += 1
            old, at = _image(layout.keys, event, at, width)
            new, at = _image(layout.all, event, at, width)
            # values are equal if their bytes are equal
            if layout.keyed and any(old[k] != new[k] for k in layout.key):
                rows.add("u", place, range(stayed + 1, ordinal))
                stayed = ordinal
                before = [old[k] for k in layout.key]
                rows.add("d", place, range(ordinal, ordinal + 1))
                rows.old += before * 2
                rows.add("u", place, range(ordinal, ordinal + 1), moved=True)
                self.summary.count(layout.table, "d", 1)
            rows.new += new
        rows.add("u", place, range(stayed + 1, ordinal + 1))
        return ordinal

    def _count(self, table: int, kind: str, number: int = 1) -> None:
        self.summary.count(table, kind, number)
        self.summary.total += number


def _image(plan: Sequence[tuple[int, int, bool]], event: bytes, at: int, width: int) -> tuple[Image, int]:
    """Return the values of one row image, and where it ends.

    :param plan: of each column, the size of its values or of the length before them, and whether to read it.
    :param width: size of the null bitmap in bytes.
    """
    nulls = int.from_bytes(event[at : at + width], "little")
    at += width
    values: Image = []
    append, number = values.append, int.from_bytes
    for size, prefix, is_read in plan:
        if nulls & 1:
            append(None)
        else:
            if prefix == 1:
                size = event[at]
                at += 1
            elif prefix:
                size = number(event[at : at + prefix], "little")
                at += prefix
            end = at + size
            append(event[at:end] if is_read else None)
            at = end
        nulls >>= 1
    return values, at
