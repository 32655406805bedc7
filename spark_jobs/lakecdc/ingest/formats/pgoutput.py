"""The messages of Postgres' output plugin ``pgoutput``, protocol version 1, as rows of Arrow batches.

Layouts: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. A value is text as the
type's output function writes it; an update leaves out large values it did not touch (``u``), which is why a row has
``open`` columns. Nothing here knows Postgres' catalog or Spark.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

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
_UNCHANGED = object()
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
    """

    oid: int
    version: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Wanted:
    """What a reader wants to know of one table.

    :param start: commit position (LSN as a number) below which its events are already applied.
    :param key: columns that identify a row.
    :param excluded: columns that are left out.
    """

    start: int
    key: tuple[str, ...]
    excluded: frozenset[str] = frozenset()


@dataclass
class Summary:
    """What one read has seen.

    :param messages: messages read, skipped ones included.
    :param end_lsn: position after the last transaction; 0 if there was none.
    :param commit_micros: its commit time, microseconds since 1970.
    :param events: number of events by table oid and kind.
    :param truncates: last TRUNCATE by table oid: commit LSN, ordinal, commit time in microseconds.
    :param relations: every description of a wanted table, in order.
    """

    messages: int = 0
    end_lsn: int = 0
    commit_micros: int = 0
    events: dict[int, dict[str, int]] = field(default_factory=dict)
    truncates: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)

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
                Relation(**{**r, "columns": tuple(RelationColumn(**c) for c in r["columns"])})
                for r in document["relations"]
            ],
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


def read_tuple(message: bytes, at: int) -> tuple[Values, int, int]:
    """Decode TupleData.

    :param at: where it begins.
    :return: values as bytes, None for null or a mark for "unchanged"; how many are unchanged; where it ends.
    """
    count = (message[at] << 8) | message[at + 1]
    at += 2
    values: Values = []
    unchanged = 0
    for _ in range(count):
        kind = message[at]
        if kind == 0x74:  # t
            length = int.from_bytes(message[at + 1 : at + 5], "big")
            at += 5 + length
            values.append(message[at - length : at])
        elif kind == 0x6E:  # n
            values.append(None)
            at += 1
        elif kind == 0x75:  # u
            values.append(_UNCHANGED)
            unchanged += 1
            at += 1
        else:
            raise ProtocolError(f"A column value of kind {chr(kind)!r} is not part of protocol version 1.")
    return values, unchanged, at


class Decoder:
    """Turns messages into rows; one instance reads one stretch of the log, from its first transaction to its last.

    :param wanted: the tables to deliver, by oid; events of others are passed over.
    """

    def __init__(self, wanted: Mapping[int, Wanted]) -> None:
        self.summary = Summary()
        self._wanted = wanted
        self._relations: dict[int, _Layout] = {}
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
                if self._rows.full:
                    yield self._rows.flush()
            elif message[0] not in b"OYM":  # origin, type, logical message
                raise ProtocolError(f"A message of kind {chr(message[0])!r} is not part of protocol version 1.")
        if len(self._rows):
            yield self._rows.flush()

    def _begin(self, message: bytes) -> None:
        self._commit_lsn, micros, _xid = _BEGIN.unpack(message)
        self._commit_micros = micros + EPOCH_MICROS
        self._ordinal = 0

    def _commit(self, message: bytes) -> None:
        _flags, _lsn, self.summary.end_lsn, micros = _COMMIT.unpack(message)
        self.summary.commit_micros = micros + EPOCH_MICROS

    def _relation(self, message: bytes) -> None:
        oid = int.from_bytes(message[1:5], "big")
        wanted = self._wanted.get(oid)
        if wanted is None:
            return
        known = self._relations.get(oid)
        relation = read_relation(message, known.relation.version if known else 0)
        if known and relation == known.relation:
            return
        if known:
            relation = read_relation(message, known.relation.version + 1)
        self._relations[oid] = _Layout(relation, wanted)
        self.summary.relations.append(relation)

    def _open(self, message: bytes) -> _Layout | None:
        """The layout of the message's table, unless it is not wanted; counts the event in the transaction."""
        self._ordinal += 1
        oid = int.from_bytes(message[1:5], "big")
        wanted = self._wanted.get(oid)
        if wanted is None or self._commit_lsn < wanted.start:
            return None
        return self._relations[oid]

    def _insert(self, message: bytes) -> None:
        layout = self._open(message)
        if layout:
            new, _unchanged, _at = read_tuple(message, 6)
            self._add(layout, "c", new, None, None)

    def _update(self, message: bytes) -> None:
        layout = self._open(message)
        if not layout:
            return
        old: Values | None = None
        full, at = False, 6
        if message[5] != 0x4E:
            full = message[5] == 0x4F
            old, _unchanged, at = read_tuple(message, 6)
            at += 1
        new, unchanged, _at = read_tuple(message, at)
        if unchanged and old is not None:
            layout.fill(new, old, full)
        moved = old is not None and layout.moved(new, old)
        if moved:
            self._add(layout, "d", None, old, None)
        self._add(layout, "u", new, old if moved else None, layout.unchanged(new) if unchanged else None)

    def _delete(self, message: bytes) -> None:
        layout = self._open(message)
        if layout:
            old, _unchanged, _at = read_tuple(message, 6)
            self._add(layout, "d", None, old, None)

    def _truncate(self, message: bytes) -> None:
        self._ordinal += 1
        (count,) = struct.unpack_from(">I", message, 1)
        for oid in struct.unpack_from(f">{count}I", message, 6):
            wanted = self._wanted.get(oid)
            if wanted and self._commit_lsn >= wanted.start:
                self._count(oid, "t")
                self.summary.truncates[oid] = (self._commit_lsn, self._ordinal, self._commit_micros)

    def _count(self, oid: int, kind: str) -> None:
        kinds = self.summary.events.setdefault(oid, {})
        kinds[kind] = kinds.get(kind, 0) + 1

    def _add(
        self, layout: _Layout, kind: str, new: Values | None, old: Values | None, unchanged: list[str] | None
    ) -> None:
        moved = new is not None and old is not None
        self._count(layout.relation.oid, kind)
        place = (self._commit_lsn, self._ordinal, self._commit_micros)
        self._rows.add((layout.relation.oid, layout.relation.version, kind, *place, moved), new, unchanged, old)


class _Layout:
    """What is known about a table's columns while its events are decoded."""

    def __init__(self, relation: Relation, wanted: Wanted) -> None:
        self.relation = relation
        names = [column.name for column in relation.columns]
        self._key = [names.index(column) for column in wanted.key if column in names]
        self._names = [name if name not in wanted.excluded else None for name in names]
        self._identity = [i for i, column in enumerate(relation.columns) if column.identity]

    def fill(self, new: Values, old: Values, full: bool) -> None:
        """Take unchanged values from the old tuple, which holds all columns or only those of the identity."""
        for i in range(len(new)) if full else self._identity:
            if new[i] is _UNCHANGED:
                new[i] = old[i]

    def moved(self, new: Values, old: Values) -> bool:
        """Tell whether the key differs."""
        return any(new[i] != old[i] for i in self._key)

    def unchanged(self, new: Values) -> list[str] | None:
        """Names of the columns still open."""
        found = [name for name, value in zip(self._names, new, strict=False) if value is _UNCHANGED and name]
        return found or None


class _Rows:
    """Rows under way to an Arrow batch; values are kept as bytes in flat lists, which Arrow takes fastest."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._facts: list[tuple[Any, ...]] = []
        self._new, self._open, self._old = _Lists(), _Lists(), _Lists()

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def full(self) -> bool:
        """Enough for one batch."""
        return len(self._facts) >= _BATCH_ROWS or self._new.bytes + self._old.bytes >= _BATCH_BYTES

    def add(self, facts: tuple[Any, ...], new: Values | None, unchanged: list[str] | None, old: Values | None) -> None:
        self._facts.append(facts)
        self._new.add(new)
        self._open.add([name.encode() for name in unchanged] if unchanged else None)
        self._old.add(old)

    def flush(self) -> pa.RecordBatch:
        """The batch; begins the next one."""
        import pyarrow as pa

        columns = list(zip(*self._facts, strict=True))
        types = [pa.int64(), pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.bool_()]
        *head, moved = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        lists = [self._new.array(), self._open.array(), self._old.array()]
        arrays = [*head, *lists, moved, pa.nulls(len(self._facts), pa.string())]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, names=_NAMES)


_NAMES = [part.split()[0] for part in SCHEMA.split(", ")]


class _Lists:
    """A column of string lists under construction."""

    def __init__(self) -> None:
        self.bytes = 0
        self._flat: list[bytes | None] = []
        self._ends: list[int] = [0]
        self._present: list[bool] = []

    def add(self, values: Sequence[Any] | None) -> None:
        self._present.append(values is not None)
        if values is not None:
            for value in values:
                if value is None or value is _UNCHANGED:
                    self._flat.append(None)
                else:
                    self._flat.append(value)
                    self.bytes += len(value)
        self._ends.append(len(self._flat))

    def array(self) -> pa.Array:
        """As an Arrow array; a cast to string checks that the text is UTF-8."""
        import pyarrow as pa

        flat = pa.array(self._flat, pa.binary()).cast(pa.string())
        absent = pa.array([not present for present in self._present], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(self._ends, pa.int32()), flat, mask=absent)


def closing_batch(summary: str) -> pa.RecordBatch:
    """The last batch of a read: one row that carries the summary.

    :param summary: JSON text of :meth:`Summary.to_json`.
    """
    import pyarrow as pa

    row: dict[str, Any] = dict.fromkeys(_NAMES)
    row |= {"kind": "end", "summary": summary}
    strings = pa.list_(pa.string())
    long = pa.int64()
    types = [long, pa.int32(), pa.string(), long, long, long, strings, strings, strings, pa.bool_(), pa.string()]
    return pa.RecordBatch.from_pylist([row], schema=pa.schema(list(zip(_NAMES, types, strict=True))))


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
