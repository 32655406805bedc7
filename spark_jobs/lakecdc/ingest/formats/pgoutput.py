"""The messages of Postgres' output plugin ``pgoutput``, protocol version 1, as rows of Arrow batches.

Layouts: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. A value is text as the
type's output function writes it; an update leaves out large values it did not touch (``u``), which is why a row has
``open`` columns. Nothing here knows Postgres' catalog or Spark.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.column_numbers import Columns, identified, places

if TYPE_CHECKING:
    import pyarrow as pa

#: microseconds between 1970 and Postgres' own epoch, 2000
EPOCH_MICROS = 946_684_800_000_000
#: Spark SQL schema of the decoded rows; the last row of a read has kind ``end`` and only ``summary``
SCHEMA = (
    "relation bigint, version int, kind string, commit_lsn bigint, ordinal bigint, commit_micros bigint, "
    "new array<string>, open array<string>, old array<string>, moved boolean, summary string"
)
_BATCH_ROWS = 20_000
_BATCH_BYTES = 16 * 1024 * 1024

_BEGIN = struct.Struct(">xqqi")
_COMMIT = struct.Struct(">xBqqq")
#: in place of a value that an update left alone
UNCHANGED = object()
Values = list[Any]


class ProtocolError(ValueError):
    """A message that protocol version 1 does not have."""


@dataclass(frozen=True)
class RelationColumn:
    """A column as a Relation message describes it.

    :param identity: part of the replica identity.
    """

    name: str
    type_oid: int
    type_modifier: int
    identity: bool


@dataclass(frozen=True)
class Relation:
    """A table at one moment of the log.

    :param version: counts the different descriptions of the table within one read, from 0.
    :param identity: ``d`` default, ``n`` nothing, ``f`` full, ``i`` index.
    :param key: places of the columns by which its rows were told apart; None if an earlier release has read it.
    """

    oid: int
    version: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]
    key: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Wanted:
    """What a reader wants to know of one table.

    :param start: commit position (LSN as a number) below which its events are already applied.
    :param key: columns that identify a row.
    :param excluded: columns that are left out.
    :param numbers: of the columns when the log was read last, and as the catalog has them, which is where ``key`` is
        from; None if a column is known by its name alone.
    """

    start: int
    key: tuple[str, ...]
    excluded: frozenset[str] = frozenset()
    numbers: tuple[Columns, Columns] | None = None

    def key_places(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where the key's columns stand.

        :param names: of all columns, as the log has them.
        :return: empty if that cannot be told.
        """
        if self.numbers is None:
            return tuple(names.index(column) for column in self.key if column in names)
        known, catalog = self.numbers
        key = [number for column in self.key if (number := catalog.get(column)) is not None]
        return places(identified(names, known, catalog), key)


@dataclass(frozen=True)
class Bounds:
    """After what a read ends, with the transaction that it is in.

    :param bytes: of column values in the rows it delivers; 0 is no bound.
    :param seconds: since the first message, once it has delivered a row; 0 is no bound.
    """

    bytes: int = 0
    seconds: float = 0


@dataclass
class Summary:
    """What one read has seen.

    :param messages: messages read, skipped ones included.
    :param end_lsn: position after the last transaction; 0 if there was none.
    :param commit_micros: its commit time, microseconds since 1970.
    :param events: number of events by table oid and kind.
    :param truncates: last TRUNCATE by table oid: commit LSN, ordinal, commit time in microseconds.
    :param relations: every description of a wanted table, in order.
    :param bytes: of the column values delivered.
    :param cut: a bound ended the read; more messages may be there.
    :param open: oids of tables with an update that leaves values out.
    """

    messages: int = 0
    end_lsn: int = 0
    commit_micros: int = 0
    events: dict[int, dict[str, int]] = field(default_factory=dict)
    truncates: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    bytes: int = 0
    cut: bool = False
    open: list[int] = field(default_factory=list)

    @property
    def event_bytes(self) -> int:
        """Mean size of an event; 0 if there was none."""
        return self.bytes // max(1, sum(sum(kinds.values()) for kinds in self.events.values()))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Summary:
        """Back from a JSON object."""
        return cls(
            document["messages"],
            document["end_lsn"],
            document["commit_micros"],
            {int(oid): kinds for oid, kinds in document["events"].items()},
            {int(oid): tuple(place) for oid, place in document["truncates"].items()},
            [
                Relation(**{**r, "columns": tuple(RelationColumn(**c) for c in r["columns"]), "key": _key(r)})
                for r in document["relations"]
            ],
            document["bytes"],
            document["cut"],
            document.get("open", []),
        )


def read_relation(message: bytes, version: int) -> Relation:
    """Decode a Relation message."""
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


def read_tuple(message: bytes, at: int) -> tuple[Values, int]:
    """Decode TupleData.

    :param at: where it begins.
    :return: values as bytes, None for null and :data:`UNCHANGED`; where it ends.
    :raises ProtocolError: a kind of value that protocol version 1 does not have.
    """
    count = (message[at] << 8) | message[at + 1]
    at += 2
    values: Values = []
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == 0x74:
            length = int.from_bytes(message[at : at + 4], "big")
            at += 4 + length
            values.append(message[at - length : at])
        elif kind in b"nu":
            values.append(None if kind == 0x6E else UNCHANGED)
        else:
            raise ProtocolError(f"A column value of kind {chr(kind)!r} is not part of protocol version 1.")
    return values, at


def write_tuple(values: Values) -> bytes:
    """The TupleData of values, the reverse of :func:`read_tuple`."""
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value is None or value is UNCHANGED:
            parts.append(b"n" if value is None else b"u")
        else:
            parts += [b"t", struct.pack(">i", len(value)), value]
    return b"".join(parts)


class Decoder:
    """Turns messages into rows; one instance reads one stretch of the log, from its first transaction to its last.

    :param wanted: the tables to deliver, by oid; events of others are passed over.
    :param bounds: a transaction is never cut.
    """

    def __init__(self, wanted: Mapping[int, Wanted], bounds: Bounds = Bounds()) -> None:
        self.summary = Summary()
        self._wanted = wanted
        self._most_bytes = bounds.bytes or float("inf")
        self._most_seconds = bounds.seconds or float("inf")
        self._deadline = 0.0
        # by the bytes that name the relation in messages
        self._layouts: dict[bytes, _Layout] = {}
        self._rows = _Rows()
        self._commit_lsn = self._commit_micros = self._ordinal = 0

    def batches(self, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Decode messages.

        :param messages: in the order of the log.
        :return: batches of :data:`SCHEMA` of bounded size, without the closing row.
        :raises ProtocolError: a message of another protocol version.
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
        for message in messages:
            self.summary.messages += 1
            handler = take.get(message[0])
            if handler is not None:
                handler(message)
                rows = self._rows
                if len(rows.ordinals) >= _BATCH_ROWS or rows.new.bytes + rows.old.bytes >= _BATCH_BYTES:
                    yield self._flush()
                if self.summary.cut:
                    break
            elif message[0] not in b"OYM":  # origin, type, logical message
                raise ProtocolError(f"A message of kind {chr(message[0])!r} is not part of protocol version 1.")
        if self._rows.ordinals:
            yield self._flush()

    def _flush(self) -> pa.RecordBatch:
        import pyarrow.compute as pc

        rows, self._rows = self._rows, _Rows()
        self._rows.begin(self._commit_lsn, self._commit_micros)
        self.summary.bytes += rows.size
        batch = rows.batch()
        if batch.column("open").null_count < batch.num_rows:
            held = pc.unique(batch.column("relation").filter(batch.column("open").is_valid())).to_pylist()
            self.summary.open = sorted({*self.summary.open, *held})
        for (layout, kind), number in Counter(zip(rows.layouts, rows.kinds, strict=True)).items():
            self._count(layout.relation.oid, kind, number)
        return batch

    def _count(self, oid: int, kind: str, number: int) -> None:
        kinds = self.summary.events.setdefault(oid, {})
        kinds[kind] = kinds.get(kind, 0) + number

    def _begin(self, message: bytes) -> None:
        self._commit_lsn, micros, _xid = _BEGIN.unpack(message)
        self._commit_micros = micros + EPOCH_MICROS
        self._ordinal = 0
        # however long the server takes before the first message, a next read would have to wait for as long again
        self._deadline = self._deadline or time.monotonic() + self._most_seconds
        self._rows.begin(self._commit_lsn, self._commit_micros)

    def _commit(self, message: bytes) -> None:
        _flags, _lsn, self.summary.end_lsn, micros = _COMMIT.unpack(message)
        self.summary.commit_micros = micros + EPOCH_MICROS
        taken = self.summary.bytes + self._rows.size
        # a read that delivers nothing must go on: the next one would begin where it did
        self.summary.cut = taken >= self._most_bytes or (taken > 0 and time.monotonic() >= self._deadline)

    def _relation(self, message: bytes) -> None:
        oid = int.from_bytes(message[1:5], "big")
        wanted = self._wanted.get(oid)
        if wanted is None:
            return
        known = self._layouts.get(message[1:5])
        relation = read_relation(message, known.relation.version if known else 0)
        if known and relation == known.relation:
            return
        if known:
            relation = read_relation(message, known.relation.version + 1)
        layout = self._layouts[message[1:5]] = _Layout(relation, wanted)
        self.summary.relations.append(replace(relation, key=layout.key))

    def _open(self, message: bytes) -> _Layout | None:
        """The layout of the message's table, unless it is not wanted; counts the event in the transaction."""
        self._ordinal += 1
        layout = self._layouts.get(message[1:5])
        return layout if layout and self._commit_lsn >= layout.start else None

    def _insert(self, message: bytes) -> None:
        layout = self._open(message)
        if layout:
            self._rows.add_new(layout, "c", self._ordinal, message)

    def _update(self, message: bytes) -> None:
        layout = self._open(message)
        if layout and message[5] == 0x4E:
            self._rows.add_new(layout, "u", self._ordinal, message)
        elif layout:
            self._update_with_old(layout, message)

    def _update_with_old(self, layout: _Layout, message: bytes) -> None:
        old, end = read_tuple(message, 6)
        new, _end = read_tuple(message, end + 1)
        layout.fill(new, old, message[5] == 0x4F)
        rows = self._rows
        if layout.moved(new, old):
            rows.add_old(layout, "d", self._ordinal, message)
            rows.add_moved(layout, self._ordinal, write_tuple(new), message)
        else:
            rows.add_new(layout, "u", self._ordinal, write_tuple(new), 0)

    def _delete(self, message: bytes) -> None:
        layout = self._open(message)
        if layout:
            self._rows.add_old(layout, "d", self._ordinal, message)

    def _truncate(self, message: bytes) -> None:
        self._ordinal += 1
        (count,) = struct.unpack_from(">I", message, 1)
        for oid in struct.unpack_from(f">{count}I", message, 6):
            wanted = self._wanted.get(oid)
            if wanted and self._commit_lsn >= wanted.start:
                self._count(oid, "t", 1)
                self.summary.truncates[oid] = (self._commit_lsn, self._ordinal, self._commit_micros)


class _Layout:
    """What is known about a table's columns while its events are decoded."""

    def __init__(self, relation: Relation, wanted: Wanted) -> None:
        self.relation = relation
        self.start = wanted.start
        names = [column.name for column in relation.columns]
        self.names = [name if name not in wanted.excluded else None for name in names]
        self.key = wanted.key_places(names)
        self._identity = [i for i, column in enumerate(relation.columns) if column.identity]

    def fill(self, new: Values, old: Values, full: bool) -> None:
        """Take unchanged values from the old tuple, which holds all columns or only those of the identity."""
        for i in range(len(new)) if full else self._identity:
            if new[i] is UNCHANGED:
                new[i] = old[i]

    def moved(self, new: Values, old: Values) -> bool:
        """Tell whether the key differs."""
        return any(new[i] != old[i] for i in self.key)


class _Rows:
    """Rows under way to an Arrow batch: facts by row, TupleData as it came, to be split for all rows at once."""

    def __init__(self) -> None:
        self.layouts: list[_Layout] = []
        self.kinds: list[str] = []
        self.ordinals: list[int] = []
        self.new, self.old = Tuples(), Tuples()
        self._moved: list[int] = []
        # first row, commit position and time of each transaction
        self._transactions: list[tuple[int, int, int]] = []

    @property
    def size(self) -> int:
        """Bytes of their values, with what the protocol adds."""
        return self.new.bytes + self.old.bytes

    def begin(self, commit_lsn: int, commit_micros: int) -> None:
        """The rows that follow are of this transaction."""
        self._transactions.append((len(self.ordinals), commit_lsn, commit_micros))

    def add_new(self, layout: _Layout, kind: str, ordinal: int, message: bytes, at: int = 6) -> None:
        """A row whose TupleData begins at ``at``."""
        self._add(layout, kind, ordinal)
        self.new.add(message, at)
        self.old.skip()

    def add_old(self, layout: _Layout, kind: str, ordinal: int, message: bytes) -> None:
        """A row of which only the old values are known."""
        self._add(layout, kind, ordinal)
        self.new.skip()
        self.old.add(message, 6)

    def add_moved(self, layout: _Layout, ordinal: int, new: bytes, message: bytes) -> None:
        """An update that changes the key.

        :param new: TupleData.
        :param message: the old values'.
        """
        self._moved.append(len(self.ordinals))
        self._add(layout, "u", ordinal)
        self.new.add(new, 0)
        self.old.add(message, 6)

    def _add(self, layout: _Layout, kind: str, ordinal: int) -> None:
        self.layouts.append(layout)
        self.kinds.append(kind)
        self.ordinals.append(ordinal)

    def batch(self) -> pa.RecordBatch:
        """The Arrow batch."""
        import numpy as np
        import pyarrow as pa

        rows = len(self.ordinals)
        relations = [(layout.relation.oid, layout.relation.version) for layout in self.layouts]
        oids, versions = zip(*relations, strict=True)
        firsts, *places = np.array(self._transactions, np.int64).T
        lsns, micros = (np.repeat(values, np.diff(firsts, append=rows)) for values in places)
        moved = np.zeros(rows, np.bool_)
        moved[self._moved] = True
        new, unchanged = self.new.split()
        old, _unchanged = self.old.split()
        arrays = [
            *(pa.array(oids, pa.int64()), pa.array(versions, pa.int32()), pa.array(self.kinds, pa.string())),
            *(pa.array(lsns), pa.array(self.ordinals, pa.int64()), pa.array(micros)),
            *(new, self._opened(unchanged), old, pa.array(moved), pa.nulls(rows, pa.string())),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=_NAMES)

    def _opened(self, unchanged: list[tuple[int, int]]) -> pa.Array:
        """The names of the columns that each row leaves open.

        :param unchanged: row and place of each.
        """
        import pyarrow as pa

        found: dict[int, list[str]] = {}
        for row, place in unchanged:
            name = self.layouts[row].names[place]
            if name is not None:
                found.setdefault(row, []).append(name)
        names = pa.list_(pa.string())
        rows = range(len(self.ordinals))
        return pa.array([found.get(row) for row in rows], names) if found else pa.nulls(len(rows), names)


_NAMES = [part.split()[0] for part in SCHEMA.split(", ")]


class Tuples:
    """TupleData of many rows, split into values column by column for all rows at once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._parts: list[bytes] = []
        self._starts: list[int] = []

    def add(self, message: bytes, at: int) -> None:
        """Add the TupleData that begins at ``at``."""
        self._starts.append(self.bytes + at)
        self._parts.append(message)
        self.bytes += len(message)

    def skip(self) -> None:
        """Add a row without a tuple."""
        self._starts.append(-1)

    def split(self) -> tuple[pa.ListArray, list[tuple[int, int]]]:
        """The values.

        :return: a list of strings per row, null for a row without a tuple; row and column of each unchanged value.
        :raises ProtocolError: a kind of value that protocol version 1 does not have.
        """
        import numpy as np
        import pyarrow as pa

        data = b"".join(self._parts)
        octets = np.frombuffer(data, np.uint8)
        starts = np.array(self._starts, np.int64)
        rows = np.nonzero(starts >= 0)[0]
        at = starts[rows]
        counts = (octets[at].astype(np.int64) << 8) | octets[at + 1]
        at += 2
        firsts = np.cumsum(counts) - counts
        bounds = np.zeros((int(counts.sum()), 2), np.int32)
        present = np.zeros(len(bounds), np.bool_)
        unchanged: list[tuple[int, int]] = []
        for place in range(int(counts.max(initial=0))):
            wide = np.nonzero(counts > place)[0]
            here = at[wide]
            kind = octets[here]
            text = kind == 0x74
            open_rows = rows[wide[kind == 0x75]]
            if not np.all(text | (kind == 0x6E) | (kind == 0x75)):
                odd = kind[~(text | (kind == 0x6E) | (kind == 0x75))][0]
                raise ProtocolError(f"A column value of kind {chr(odd)!r} is not part of protocol version 1.")
            first, end = here + 1, here + 1
            lengths = here[text]
            size = sum(octets[lengths + n].astype(np.int64) << (32 - 8 * n) for n in range(1, 5))
            first[text] = lengths + 5
            end[text] = lengths + 5 + size
            bounds[firsts[wide] + place, 0], bounds[firsts[wide] + place, 1] = first, end
            present[firsts[wide] + place] = text
            at[wide] = end
            unchanged += [(row, place) for row in open_rows.tolist()]
        per_row = np.zeros(len(starts) + 1, np.int32)
        per_row[rows + 1] = counts
        offsets = pa.array(np.cumsum(per_row, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, _cut(data, bounds, present), mask=pa.array(starts < 0)), unchanged


def _cut(data: bytes, bounds: Any, present: Any) -> pa.Array:
    """Strings out of a buffer.

    :param bounds: begin and end of each, ascending; Arrow sees values and the gaps between them in turn.
    :param present: false for null.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    if not len(bounds):
        return pa.array([], pa.string())
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(bounds) - 1, [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(data)]
    )
    values = pieces.take(pa.array(np.arange(0, 2 * len(bounds) - 1, 2)))
    # the cast checks that the text is UTF-8
    return compute.if_else(pa.array(present), values, pa.scalar(None, pa.binary())).cast(pa.string())


def _key(relation: Mapping[str, Any]) -> tuple[int, ...] | None:
    found = relation.get("key")
    return None if found is None else tuple(found)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
