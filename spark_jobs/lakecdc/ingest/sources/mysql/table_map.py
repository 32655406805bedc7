"""Read Table_map events: the columns of a table's rows at one place in the log, and the encoding of their values.

Layout: MySQL's source documentation, class ``Table_map_event``; names, signs, character sets and the values of
enumerations come in its optional metadata, fully so under ``binlog_row_metadata = FULL``. The rest is read from the
server's current description of the table, if that can be the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakecdc.ingest.sources.mysql import values
from lakecdc.ingest.sources.mysql.json_binary import json_document
from lakecdc.ingest.sources.mysql.types import MysqlType
from lakecdc.ingest.sources.mysql.values import Codec, Read

T = TypeVar("T")
BINARY = "binary"
_INTEGERS = {1: ("tinyint", 1), 2: ("smallint", 2), 9: ("mediumint", 3), 3: ("int", 4), 8: ("bigint", 8)}
_NUMBERS = frozenset({*_INTEGERS, 4, 5, 13, 246})
_PLAIN: dict[int, tuple[str, Callable[[], Codec]]] = {
    13: ("year", values.year),
    10: ("date", values.day),
    14: ("date", values.day),
}
# types of columns created before MySQL 5.6.4 and never rebuilt
_OLD_TIMES = (7, 11, 12)
_WITH_PLACES = {17: ("timestamp", values.instant), 18: ("datetime", values.moment), 19: ("time", values.duration)}
_METADATA_BYTES = {
    **dict.fromkeys((4, 5, 17, 18, 19, 140, 242, 245, 252, 255), 1),
    **dict.fromkeys((15, 16, 141, 246, 247, 248, 253, 254), 2),
}
# a vector is a kind of blob
_CHARACTERS = frozenset({15, 242, 252, 253, 254})
_STRING, _ENUM, _SET, _BLOB, _GEOMETRY, _BIT, _JSON, _DECIMAL, _VECTOR = 254, 247, 248, 252, 255, 16, 245, 246, 242
_FLOAT, _DOUBLE = 4, 5
#: types of bytes and text that the log does not distinguish
_BYTES_OR_TEXT = {
    _BLOB: ("blob", "text"),
    _STRING: ("binary", "char"),
    **dict.fromkeys((15, 253), ("varbinary", "varchar")),
}

#: for logs that do not name their columns
REMEDY = "set binlog_row_metadata = FULL at the source and reload the table"


class LayoutError(ValueError):
    """Rows of a table cannot be read; the message says why."""


@dataclass(frozen=True)
class Named:
    """Facts about a column besides the encoding of its values.

    :param type: the server's current type; None if the log describes the column.
    :param charset: name of the character set; ``binary`` for bytes.
    """

    name: str
    type: MysqlType | None = None
    unsigned: bool = False
    charset: str = BINARY
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogColumn:
    name: str
    type: MysqlType
    codec: Codec = field(compare=False)


@dataclass
class Optional:
    """The optional metadata of one event, by column."""

    names: list[str] = field(default_factory=list)
    unsigned: dict[int, bool] = field(default_factory=dict)
    collations: dict[int, int] = field(default_factory=dict)
    members: dict[int, list[bytes]] = field(default_factory=dict)


def table_name(body: bytes) -> tuple[str, str, int]:
    """Return schema and table of a Table_map event, and the start of its columns.

    :param body: bytes from the schema's length on.
    """
    end = 1 + body[0]
    schema, at = body[1:end].decode(), end + 1
    end = at + 1 + body[at]
    return schema, body[at + 1 : end].decode(), end + 1


def read_columns(
    body: bytes, at: int, charsets: Mapping[int, str], unnamed: Callable[[], Sequence[Named]], mariadb: bool
) -> tuple[LogColumn, ...]:
    """Read the columns of a Table_map event.

    :param body: see :func:`table_name`, as is ``at``.
    :param charsets: name of the character set by collation number.
    :param unnamed: returns the server's current columns, with their names at the time of the rows.
    :param mariadb: MariaDB counts geometries among the columns with a character set.
    :raises LayoutError: a column cannot be read.
    """
    cursor = _Cursor(body, at)
    codes = cursor.octets()
    kinds, metas = _real_types(codes, cursor.octets())
    # which columns may be null
    cursor.at += (len(codes) + 7) // 8
    optional = _optional(cursor, kinds, mariadb)
    named = _named(optional, kinds, charsets) if optional.names else _as_now(kinds, metas, unnamed())
    return tuple(_column(kind, meta, column) for kind, meta, column in zip(kinds, metas, named, strict=True))


def length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and its end."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


class _Cursor:
    """Read length-encoded values one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self.at = data, at

    def number(self) -> int:
        number, self.at = length(self._data, self.at)
        return number

    def octets(self) -> bytes:
        size = self.number()
        self.at += size
        return self._data[self.at - size : self.at]

    def all(self, read: Callable[[_Cursor], T]) -> list[T]:
        items = []
        while self.at < len(self._data):
            items.append(read(self))
        return items


def _real_types(codes: bytes, metadata: bytes) -> tuple[list[int], list[bytes]]:
    kinds, metas, at = [], [], 0
    for code in codes:
        size = _METADATA_BYTES.get(code, 0)
        meta = metadata[at : at + size]
        at += size
        if code == _STRING:
            # two length bits of a long CHAR are in the type, inverted
            kind = meta[0] | 0x30
            meta = (((meta[0] & 0x30) ^ 0x30) << 4 | meta[1]).to_bytes(2, "little")
            code = kind if kind in (_ENUM, _SET) else _STRING
        kinds.append(code)
        metas.append(meta)
    return kinds, metas


def _optional(cursor: _Cursor, kinds: Sequence[int], mariadb: bool) -> Optional:
    metadata = Optional()
    characters = [i for i, k in enumerate(kinds) if k in _CHARACTERS or (mariadb and k == _GEOMETRY)]
    chosen = [i for i, k in enumerate(kinds) if k in (_ENUM, _SET)]
    for kind, value in cursor.all(lambda at: (at.number(), at.octets())):
        if kind == 1:
            numbers = [i for i, k in enumerate(kinds) if k in _NUMBERS]
            metadata.unsigned = {i: bool(value[n >> 3] & 0x80 >> (n & 7)) for n, i in enumerate(numbers)}
        elif kind in (2, 10):
            columns = characters if kind == 2 else chosen
            default, *rest = _Cursor(value).all(_Cursor.number)
            metadata.collations |= dict.fromkeys(columns, default)
            others = zip(rest[::2], rest[1::2], strict=True)
            metadata.collations |= {columns[place]: collation for place, collation in others}
        elif kind in (3, 11):
            numbers = _Cursor(value).all(_Cursor.number)
            metadata.collations |= dict(zip(characters if kind == 3 else chosen, numbers, strict=True))
        elif kind == 4:
            metadata.names = [name.decode() for name in _Cursor(value).all(_Cursor.octets)]
        elif kind in (5, 6):
            columns = [i for i, k in enumerate(kinds) if k == (_SET if kind == 5 else _ENUM)]
            members = _Cursor(value).all(lambda at: [at.octets() for _ in range(at.number())])
            metadata.members |= dict(zip(columns, members, strict=True))
    return metadata


def _named(optional: Optional, kinds: Sequence[int], charsets: Mapping[int, str]) -> list[Named]:
    columns = []
    for i, name in enumerate(optional.names):
        charset = BINARY
        if i in optional.collations and kinds[i] != _GEOMETRY:
            collation = optional.collations[i]
            if collation not in charsets:
                raise LayoutError(f"Column {name!r} has the collation {collation}, which the server does not know.")
            charset = charsets[collation]
        texts = tuple(_reader(name, charset)(optional.members.get(i, [])).to_pylist())
        columns.append(Named(name, None, optional.unsigned.get(i, False), charset, texts))
    return columns


def _as_now(kinds: Sequence[int], metas: Sequence[bytes], now: Sequence[Named]) -> list[Named]:
    """Return the server's current columns, if they match the rows."""
    if len(kinds) != len(now):
        raise LayoutError(f"Rows in the log have {len(kinds)} columns, the table now has {len(now)}; {REMEDY}.")
    for kind, meta, column in zip(kinds, metas, now, strict=True):
        assert column.type is not None
        read = _column(kind, meta, column).type
        if replace(read, unsigned=False) != replace(column.type, unsigned=False):
            raise LayoutError(f"Column {column.name!r} was {read.base} in the log and is {column.type.base}; {REMEDY}.")
    return list(now)


def _column(kind: int, meta: bytes, column: Named) -> LogColumn:
    def of_type(base: str, codec: Codec, precision: int = 0, scale: int = 0) -> LogColumn:
        return LogColumn(column.name, MysqlType(base, column.unsigned, precision, scale), codec)

    if kind in _INTEGERS:
        base, size = _INTEGERS[kind]
        return of_type(base, values.integer(size, column.unsigned))
    if kind in _PLAIN:
        base, codec = _PLAIN[kind]
        return LogColumn(column.name, MysqlType(base), codec())
    if kind in _WITH_PLACES:
        base, with_places = _WITH_PLACES[kind]
        return of_type(base, with_places(meta[0]))
    if kind in (_FLOAT, _DOUBLE):
        return of_type("float" if kind == _FLOAT else "double", values.real(meta[0]))
    if kind == _DECIMAL:
        return of_type("decimal", values.decimal(meta[0], meta[1]), meta[0], meta[1])
    if kind == _BIT:
        width = meta[0] + 8 * meta[1]
        return of_type("bit", values.bits((width + 7) // 8), width)
    if kind in (_ENUM, _SET):
        choose = values.enumeration if kind == _ENUM else values.selection
        # the low byte is the size, the high byte the type
        return of_type("enum" if kind == _ENUM else "set", choose(meta[0], column.members))
    return _lengthy(kind, meta, column)


def _lengthy(kind: int, meta: bytes, column: Named) -> LogColumn:
    """Return a column whose values follow their lengths."""
    size = int.from_bytes(meta, "little")
    if kind == _JSON:
        return LogColumn(column.name, MysqlType("json"), json_document(size))
    if kind in (_GEOMETRY, _VECTOR):
        return LogColumn(column.name, MysqlType("geometry" if kind == _GEOMETRY else "vector"), values.octets(size))
    if kind in _OLD_TIMES:
        remedy = "run ALTER TABLE … FORCE at the source and reload the table"
        raise LayoutError(f"Column {column.name!r} has the time format of before MySQL 5.6; {remedy}.")
    if kind not in _BYTES_OR_TEXT:
        raise LayoutError(f"Column {column.name!r} has the unknown log type {kind}.")
    prefix = size if kind == _BLOB else 1 if size < 256 else 2
    of_bytes, of_text = _BYTES_OR_TEXT[kind]
    if column.charset == BINARY:
        codec = values.octets(prefix, size if kind == _STRING else 0)
        return LogColumn(column.name, MysqlType(of_bytes), codec)
    return LogColumn(column.name, MysqlType(of_text), Codec(_reader(column.name, column.charset), prefix=prefix))


def _reader(column: str, charset: str) -> Read:
    read = values.reader("utf8mb4" if charset == BINARY else charset)
    if read is None:
        raise LayoutError(f"Column {column!r} has the character set {charset}, which Python cannot read.")
    return read
