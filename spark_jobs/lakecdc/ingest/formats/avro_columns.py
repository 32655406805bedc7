"""Read many records in Avro of one schema as JSON, field by field of all records with numpy.

Reading them one by one takes five times as long. That is left to fastavro, which alone decides whether bytes fit their
schema: it reads each record that is not in the usual form, because it ends too early, has many items or a number out of
bounds. Both give the same JSON.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.envelopes.json_values import Numbers, letters_of
from lakecdc.ingest.formats.avro_schema import AvroSchema, write_double, write_float

#: zeros required behind the bytes of records
PADDING = 16
_MOST_SCHEMAS = 64
# fewer records are read faster one by one
_FEW = 200
# items of an array that are read side by side
_MOST_ITEMS = 16
# bytes of a number of 64 bits, of which each has 7
_NUMBER_BYTES = 10
_ENCODE = msgspec.json.Encoder().encode


class Cursor:
    """The place up to which each record of a schema is read.

    :param octets: bytes of all records in ascending order, with :data:`PADDING`.
    :param starts: places of their first bytes.
    :param ends: places behind their last bytes.
    :ivar odd: which records are not in the usual form; their values are undefined.
    """

    def __init__(self, octets: Numbers, starts: Numbers, ends: Numbers) -> None:
        self.octets, self._data = octets, pa.py_buffer(octets)
        self._at, self._ends = starts.copy(), ends
        self.odd = np.zeros(len(starts), np.bool_)

    def numbers(self, rows: Numbers) -> Numbers:
        """Read a number of each of some records: zigzag coding, 7 bits a byte, the lowest first."""
        starts = self._at[rows]
        octets = self.octets[starts]
        bits, sizes = (octets & 127).astype(np.uint64), np.ones(len(rows), np.int64)
        longer = np.flatnonzero(octets > 127)
        for size in range(1, _NUMBER_BYTES):
            if not len(longer):
                break
            octets = self.octets[starts[longer] + size]
            bits[longer] |= (octets & 127).astype(np.uint64) << np.uint64(7 * size)
            sizes[longer] += 1
            longer = longer[octets > 127]
        self._pass(rows, sizes)
        self.odd[rows[longer]] = True
        return (bits >> np.uint64(1)).astype(np.int64) ^ -(bits & np.uint64(1)).astype(np.int64)

    def octets_of(self, rows: Numbers, size: int) -> Numbers:
        """Read as many bytes of each of some records, one record a row."""
        starts, _ = self._pass(rows, np.full(len(rows), size))
        return self.octets[starts[:, None] + np.arange(size)]

    def values(self, rows: Numbers, sizes: Numbers) -> pa.Array:
        """Read the given bytes of each of some records, of type binary."""
        edges = np.stack(self._pass(rows, sizes), axis=1).astype(np.int32)
        # every second value is between two of these
        count = 2 * len(rows)
        together = pa.Array.from_buffers(pa.binary(), count - 1, [None, pa.py_buffer(edges), self._data])
        return together.take(pa.array(np.arange(0, count, 2)))

    def _pass(self, rows: Numbers, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Pass over bytes of records; return their bounds, which are empty beyond the end of a record."""
        starts = self._at[rows]
        beyond = (sizes < 0) | (sizes > self._ends[rows] - starts)
        ends = starts + np.where(beyond, 0, sizes)
        self._at[rows] = ends
        self.odd[rows[beyond]] = True
        return starts, ends


# parts of JSON texts in order: the same bytes in each text, or an array of type binary
_Parts = list[Any]
# reads a value of each of some records as JSON
_Read = Callable[[Cursor, Numbers], _Parts]


def read_records(schema: AvroSchema, octets: Numbers, starts: Numbers, ends: Numbers) -> pa.Array:
    """Return records as JSON, of type binary; null where the bytes do not fit the schema.

    :param octets: bytes of all records in ascending order, with :data:`PADDING`.
    """
    cursor = Cursor(octets, starts, ends)
    texts = _read_together(schema, cursor, np.arange(len(starts))) if len(starts) >= _FEW else None
    if texts is None:
        texts, cursor.odd[:] = pa.nulls(len(starts), pa.binary()), True
    if not cursor.odd.any():
        return texts
    alone = [_read_alone(schema, octets[starts[row] : ends[row]].tobytes()) for row in np.flatnonzero(cursor.odd)]
    return pc.replace_with_mask(texts, pa.array(cursor.odd), pa.array(alone, pa.binary()))


def _read_together(schema: AvroSchema, cursor: Cursor, rows: Numbers) -> pa.Array | None:
    """Return records as JSON, undefined for the odd ones; None if only fastavro can read them."""
    try:
        return _joined(_reader(schema.text)(cursor, rows), rows)
    except Exception:
        # of any type: fastavro accepts a size that is a text, a union without types and others
        return None


def _read_alone(schema: AvroSchema, data: bytes) -> bytes | None:
    try:
        return schema.to_json(io.BytesIO(data))
    except Exception:
        # of any type
        return None


def each_group(numbers: Numbers, read: Callable[[int, Numbers], pa.Array]) -> pa.Array:
    """Return the values that are read, for each number, of the rows with this number; in the order of rows."""
    if not len(numbers):
        return pa.array([], pa.binary())
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    values = [read(int(numbers[rows[0]]), rows) for rows in groups]
    return values[0] if len(values) == 1 else pa.concat_arrays(values).take(pa.array(np.argsort(order)))


@lru_cache(_MOST_SCHEMAS)
def _reader(text: str) -> _Read:
    # only needed with Avro, and slow to import
    from fastavro.schema import expand_schema

    return _reader_of(expand_schema(json.loads(text)))


def _reader_of(node: Any) -> _Read:
    """Return the reader of a type without references to others."""
    if isinstance(node, list):
        return partial(_read_union, [_reader_of(branch) for branch in node])
    kind = node["type"] if isinstance(node, dict) else node
    if kind in ("record", "error"):
        fields = {field["name"]: _reader_of(field["type"]) for field in node["fields"]}
        if len(fields) < len(node["fields"]):
            raise ValueError("two fields have the same name")
        return partial(_read_struct, fields)
    if kind == "enum":
        return partial(_read_symbol, [_ENCODE(symbol) for symbol in node["symbols"]])
    if kind == "fixed":
        return partial(_read_fixed, node["size"])
    if kind == "array":
        return partial(_read_items, (b"[", b"]"), _MOST_ITEMS, [_reader_of(node["items"])])
    if kind == "map":
        # of several items, two may have the same name
        return partial(_read_items, (b"{", b"}"), 1, [_read_string, b":", _reader_of(node["values"])])
    return _READERS[kind]


def _joined(parts: _Parts, rows: Numbers) -> pa.Array:
    """Return the texts of parts."""
    merged: _Parts = [b""]
    for part in parts:
        if isinstance(part, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    if len(merged) == 1:
        return pa.repeat(pa.scalar(merged[0], pa.binary()), len(rows))
    return pc.binary_join_element_wise(*merged, b"")


def _read_union(branches: Sequence[_Read], cursor: Cursor, rows: Numbers) -> _Parts:
    numbers = _within(cursor.numbers(rows), len(branches), cursor, rows)
    if (numbers == numbers[0]).all():
        return branches[numbers[0]](cursor, rows)
    return [each_group(numbers, lambda number, places: _joined(branches[number](cursor, rows[places]), places))]


def _read_struct(fields: Mapping[str, _Read], cursor: Cursor, rows: Numbers) -> _Parts:
    parts: _Parts = []
    for name, read in fields.items():
        parts += [b"," if parts else b"", _ENCODE({name: 0})[1:-2], *read(cursor, rows)]
    return [b"{", *parts, b"}"]


def _read_symbol(texts: Sequence[bytes], cursor: Cursor, rows: Numbers) -> _Parts:
    return [_pick(texts, _within(cursor.numbers(rows), len(texts), cursor, rows))]


def _within(numbers: Numbers, count: int, cursor: Cursor, rows: Numbers) -> Numbers:
    """Return numbers of choices; 0 for a number without a choice."""
    beyond = (numbers < 0) | (numbers >= count)
    cursor.odd[rows[beyond]] = True
    return np.where(beyond, 0, numbers)


def _pick(texts: Sequence[bytes], numbers: Numbers) -> pa.Array:
    return pa.array(texts, pa.binary()).take(pa.array(numbers))


def _read_null(cursor: Cursor, rows: Numbers) -> _Parts:
    return [b"null"]


def _read_boolean(cursor: Cursor, rows: Numbers) -> _Parts:
    return [_pick((b"false", b"true"), (cursor.octets_of(rows, 1)[:, 0] != 0).astype(np.int64))]


def _read_integer(cursor: Cursor, rows: Numbers) -> _Parts:
    return [pa.array(cursor.numbers(rows)).cast(pa.string()).cast(pa.binary())]


def _read_fraction(size: int, write: Callable[[float], bytes], cursor: Cursor, rows: Numbers) -> _Parts:
    values = cursor.octets_of(rows, size).view(f"<f{size}")[:, 0]
    return [pa.array(map(write, values.tolist()), pa.binary())]


def _read_fixed(size: int, cursor: Cursor, rows: Numbers) -> _Parts:
    return _in_base64(cursor.values(rows, np.full(len(rows), size)))


def _read_bytes(cursor: Cursor, rows: Numbers) -> _Parts:
    return _in_base64(cursor.values(rows, cursor.numbers(rows)))


def _in_base64(values: pa.Array) -> _Parts:
    return [pa.array(map(_ENCODE, values.to_pylist()), pa.binary())]


def _read_string(cursor: Cursor, rows: Numbers) -> _Parts:
    values = cursor.values(rows, cursor.numbers(rows))
    octets, _ = letters_of(values)
    if (octets < ord(" ")).any() or ((octets > ord("~")).any() and not _is_utf8(values)):
        texts = [_encode_text(value) for value in values.to_pylist()]
        cursor.odd[rows] |= [text is None for text in texts]
        return [pa.array([text or b"" for text in texts], pa.binary())]
    for letter in (b"\\", b'"'):
        if (octets == ord(letter)).any():
            values = pc.replace_substring(values, letter, b"\\" + letter)
    return [b'"', values, b'"']


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _encode_text(value: bytes) -> bytes | None:
    try:
        return _ENCODE(value.decode())
    except UnicodeDecodeError:
        return None


def _read_items(
    bounds: tuple[bytes, bytes], most: int, item: Sequence[_Read | bytes], cursor: Cursor, rows: Numbers
) -> _Parts:
    """Read the items of arrays or maps in one block.

    :param item: what an item consists of.
    """
    counts = _within(cursor.numbers(rows), most + 1, cursor, rows)

    def read(count: int, places: Numbers) -> pa.Array:
        own = rows[places]
        parts: _Parts = [bounds[0]]
        for number in range(count):
            parts.append(b"," if number else b"")
            for part in item:
                parts += [part] if isinstance(part, bytes) else part(cursor, own)
        if count:
            # another block
            cursor.odd[own] |= cursor.numbers(own) != 0
        return _joined([*parts, bounds[1]], own)

    return [each_group(counts, read)]


_READERS: dict[str, _Read] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_integer,
    "long": _read_integer,
    "float": partial(_read_fraction, 4, write_float),
    "double": partial(_read_fraction, 8, write_double),
    "bytes": _read_bytes,
    "string": _read_string,
}
