"""Read Avro files of Iceberg's writers in tasks, with the columns that a Parquet file of the same rows would have.

Sources: Iceberg's table specification, "Avro"; Apache Avro 1.12 specification, "Object Container Files".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from lakecdc.model.iceberg_columns import with_field_id
from lakecdc.reader.avro_codecs import add_codecs
from lakecdc.reader.parquet_files import RowGroup, groups_without_bounds
from lakecdc.reader.projection import Projection, UnreadError

_SYNC_BYTES = 16
_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}},
    ],
}
# encoded bytes to decode at once, and the maximum of a block, which is decoded whole
_PIECE_BYTES, _BLOCK_BYTES = 256 * 1024, 64 * 1024**2
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


class _Piece(NamedTuple):
    """Blocks of a file.

    :param begin: position of their first row; ``end`` is the position after the last.
    :param offset: of their first byte.
    """

    begin: int
    end: int
    offset: int
    size: int


class AvroFile:
    """An Avro data file.

    :raises UnreadError: its schema is not one of Iceberg's writers, it is damaged, or its blocks take too much memory.
    """

    def __init__(self, stream: Any, location: str) -> None:
        # only needed with Avro, and slow to import
        from fastavro import schemaless_reader, schemaless_writer
        from fastavro.schema import expand_schema

        add_codecs()
        self._stream, self._location = stream, location
        try:
            header: Any = schemaless_reader(stream, _HEADER, None)
            written = json.loads(header["meta"]["avro.schema"])
            whole: Any = expand_schema(written)
            self.schema = pa.schema([_field(member) for member in whole["fields"]])
            self._pieces = list(_pieces(stream))
            header["meta"]["avro.schema"] = json.dumps(_without_logical_types(written)).encode()
            schemaless_writer(head := io.BytesIO(), _HEADER, header)
        except UnreadError:
            raise
        except Exception as error:
            raise UnreadError(f"{location}: {error!r}") from error
        self._head, self.rows = head.getvalue(), self._pieces[-1].end if self._pieces else 0

    def batches(self, begin: int, end: int, columns: Projection) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield stored rows of the blocks that a range overlaps, with the position of the first.

        :raises UnreadError: a block is damaged, or has a value that its column's type does not hold.
        """
        if not columns.places:
            raise UnreadError("the file has none of the columns")
        schema = pa.schema([self.schema.field(place) for place in columns.places])
        for piece in self._pieces:
            if piece.begin < end and piece.end > begin:
                yield piece.begin, self._decoded(piece, schema)

    def groups(self, columns: Projection) -> Iterator[RowGroup]:
        """Yield all rows, without bounds."""
        return groups_without_bounds(self.batches(0, self.rows, columns), columns)

    def _decoded(self, piece: _Piece, schema: pa.Schema) -> pa.RecordBatch:
        from fastavro import reader

        self._stream.seek(piece.offset)
        try:
            rows: list[Any] = list(reader(io.BytesIO(self._head + self._stream.read(piece.size))))
            columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        except Exception as error:
            raise UnreadError(f"{self._location}: {error!r}") from error
        if len(rows) != piece.end - piece.begin:
            raise UnreadError(f"{self._location}: blocks have {len(rows)} rows, not {piece.end - piece.begin}")
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _pieces(stream: Any) -> Iterator[_Piece]:
    """Yield the blocks behind the header, small ones together.

    :raises UnreadError: a block is too large to decode.
    """
    begin = rows = 0
    offset = position = stream.tell()
    length = stream.seek(0, io.SEEK_END)
    while position < length:
        if position - offset >= _PIECE_BYTES:
            yield _Piece(begin, rows, offset, position - offset)
            begin, offset = rows, position
        stream.seek(position)
        count, size = _long(stream), _long(stream)
        if size > _BLOCK_BYTES:
            raise UnreadError(f"a block has more than {_BLOCK_BYTES} bytes")
        rows, position = rows + count, stream.tell() + size + _SYNC_BYTES
    if position > offset:
        yield _Piece(begin, rows, offset, position - offset)


def _long(stream: Any) -> int:
    from fastavro import schemaless_reader

    value: Any = schemaless_reader(stream, "long", None)
    if value < 0:
        raise ValueError("a block has a negative size")
    return int(value)


def _without_logical_types(schema: Any) -> Any:
    """Return a schema for fastavro without types that Arrow makes of integers and bytes."""
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    left = {key: _without_logical_types(value) for key, value in schema.items()}
    if left.get("logicalType") != "decimal":
        left.pop("logicalType", None)
    return left


def _field(member: Any) -> pa.Field:
    """Return the Arrow field of a member of a record."""
    return _member(member["name"], member["type"], member.get("field-id"))


def _member(name: str, kind: Any, number: int | None) -> pa.Field:
    kinds = kind if isinstance(kind, list) else [kind]
    others = [one for one in kinds if one != "null"] or ["null"]
    if len(others) > 1:
        raise UnreadError(f"{name} is a union of several types")
    field = pa.field(name, _type(others[0]), len(others) < len(kinds))
    return field if number is None else with_field_id(field, number)


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return _PLAIN[kind]
    name, logical = kind["type"], kind.get("logicalType")
    if name == "record":
        return pa.struct([_field(member) for member in kind["fields"]])
    if name == "map":
        key = _member("key", "string", kind.get("key-id"))
        return pa.map_(key, _member("value", kind["values"], kind.get("value-id")))
    if name == "array" and logical == "map":
        # maps of Avro have text keys only
        return pa.map_(*map(_field, kind["items"]["fields"]))
    if name == "array":
        return pa.list_(_member("element", kind["items"], kind.get("element-id")))
    if logical == "decimal":
        return pa.decimal128(kind["precision"], kind["scale"])
    if name == "fixed":
        return pa.binary(kind["size"])
    return _PLAIN[name] if logical is None else _of_integers(logical, "UTC" if kind.get("adjust-to-utc") else None)


def _of_integers(logical: str, zone: str | None) -> pa.DataType:
    kinds = {
        "date": pa.date32(),
        "time-micros": pa.time64("us"),
        "timestamp-micros": pa.timestamp("us", zone),
        "timestamp-nanos": pa.timestamp("ns", zone),
    }
    if logical not in kinds:
        raise UnreadError(f"tasks do not know the logical type {logical}")
    return kinds[logical]
