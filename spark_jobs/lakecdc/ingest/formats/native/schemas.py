"""Messages that carry their schemas: the text around the payload is compared, not parsed, and tells the columns.

All messages of a table share that text, as long as its columns stay as they are. The messages of other schemas have no
payload here, and are odd.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.widening import holds
from lakecdc.ingest.formats import debezium_schema
from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.native.exact import supports
from lakecdc.ingest.formats.values import Field

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

#: column of messages in which the payload stands beside the whole value
PAYLOAD = "payload"
#: columns that stand beside those of a message
BESIDE = (PAYLOAD, "key_text", "moved_text")
_SPACE = " \t\r\n"
# shorter ones are no row events
_SHORTEST = 20
_LONG = 2**40


class SchemaError(Exception):
    """The columns of a schema are not those that this engine can decode."""


@dataclass(frozen=True)
class Wrapping:
    """What messages have around their payloads.

    :param begin: their text up to the payload.
    :param end: and behind it.
    :param fields: columns of the schema in one of them.
    """

    begin: bytes
    end: bytes
    fields: tuple[Field, ...]

    def unwrapped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Messages with :data:`PAYLOAD`, null for those that have something else around it."""
        import pyarrow as pa

        value = batch.column("value").cast(pa.binary())
        return batch.append_column(pa.field(PAYLOAD, pa.string_view()), self._payloads(value))

    def _payloads(self, values: pa.Array) -> pa.Array:
        """The payloads, uncopied."""
        import numpy as np
        import pyarrow as pa

        count, (_, bounds, letters) = len(values), values.buffers()
        if not count or letters is None:
            return pa.nulls(count, pa.string_view())
        edges = np.frombuffer(bounds, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        length = edges[1:] - edges[:-1] - len(self.begin) - self._behind(values)
        mine = _all_of(values, "starts_with", self.begin) & (length > _SHORTEST)
        start = np.where(mine, edges[:-1] + len(self.begin), 0)
        # Arrow's layout of views: length, first bytes, number of the buffer, place in it
        views = np.zeros(count, [("length", "<i4"), ("first", "u1", 4), ("buffer", "<i4"), ("place", "<i4")])
        views["length"], views["place"] = np.where(mine, length, 0), start
        first = np.frombuffer(letters, np.uint8)[start[:, None] + np.arange(4)] if mine.any() else 0
        views["first"] = np.where(mine[:, None], first, 0)
        return pa.Array.from_buffers(
            pa.string_view(), count, [pa.array(mine).buffers()[1], pa.py_buffer(views), letters]
        )

    def _behind(self, values: pa.Array) -> np.ndarray[Any, Any]:
        """How many bytes stand behind the payload, the end of a line included; more than there are if others do."""
        import numpy as np

        found = np.full(len(values), _LONG)
        for line_end in (b"", b"\n", b"\r\n"):
            if (found == _LONG).any():
                end = self.end + line_end
                found[_all_of(values, "ends_with", end)] = len(end)
        return found


def _all_of(values: pa.Array, test: str, part: bytes) -> np.ndarray[Any, Any]:
    import pyarrow.compute as pc

    found: np.ndarray[Any, Any] = pc.fill_null(getattr(pc, test)(values, part), False).to_numpy(zero_copy_only=False)
    return found


def wrapping(messages: pa.RecordBatch) -> Wrapping | None:
    """What is around the payload of the first message; None if there is no message, or no schema in it."""
    import pyarrow.compute as pc

    values = messages.column("value").filter(pc.is_valid(messages.column("value")))
    try:
        first = values[0].as_py() if len(values) else None
        text = first.decode() if isinstance(first, bytes) else first or ""
        members, places, place = {}, {}, 0
        for before in "{,":
            name, place = _DECODER.raw_decode(text, _skipped(text, _behind(text, place, before)))
            begin = _skipped(text, _behind(text, place, ":"))
            members[name], place = _DECODER.raw_decode(text, begin)
            places[name] = (begin, place)
        rest = text[_behind(text, place, "}") :].strip(_SPACE)
        if rest or {*members} != {"schema", PAYLOAD} or not isinstance(members["schema"], dict):
            return None
        begin, place = places[PAYLOAD]
        end = text[place:].rstrip("\r\n")
        return Wrapping(text[:begin].encode(), end.encode(), debezium_schema.fields(json.dumps(members["schema"])))
    except NO_SCHEMA:
        return None


def _behind(text: str, place: int, letter: str) -> int:
    place = _skipped(text, place)
    if text[place : place + 1] != letter:
        raise ValueError(letter)
    return place + 1


def _skipped(text: str, place: int) -> int:
    while text[place : place + 1] in _SPACE and place < len(text):
        place += 1
    return place


def _plain_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; one of two equal names is no JSON to Spark."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("two members of one name")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_plain_object)


def to_json(fields: tuple[Field, ...]) -> str:
    """The columns of a schema, as tasks tell them."""
    return json.dumps([astuple(f) for f in fields])


def from_json(text: str) -> tuple[Field, ...]:
    """The same, read again."""
    fields = (Field(*values) for values in json.loads(text))
    return tuple(replace(one, names=tuple(one.names)) for one in fields)


def outgrown(columns: Iterable[Field], told: Iterable[Field], fixed: Collection[str]) -> str | None:
    """Name of a column of the table that cannot stay as it is with the types of a schema; None if all can.

    :param fixed: columns whose types the target declares.
    """
    types = {f.name: f.type for f in told if f.name not in fixed}
    return next((c.name for c in columns if c.name in types and not holds(c.type, types[c.name])), None)


def named_alike(columns: Iterable[Field], told: Iterable[Field]) -> bool:
    """Whether the columns have the names of values that a schema tells."""
    known = {c.name: c for c in columns}
    return all(known[f.name].names == f.with_type(known[f.name].type).names for f in told if f.name in known)


def encoded(
    columns: tuple[Field, ...], told: tuple[Field, ...], key: tuple[str, ...], ignored: tuple[str, ...],
    encodings: Mapping[str, str], own: tuple[str, ...] = (),
) -> tuple[Field, ...]:  # fmt: skip
    """A table's columns, as messages of a schema write them.

    :param columns: of the table.
    :param told: of the schema.
    :param key: names of the table's key columns.
    :param ignored: columns of the source that the table leaves out.
    :param encodings: those that the target declares.
    :param own: columns of the table that no message has.
    :raises SchemaError: the schema has a column that the table lacks, or lacks one of the key, or one is written in a
        way that this engine does not know.
    """
    seen = {f.name: f for f in told}
    new = [name for name in seen if name not in {*ignored, *(f.name for f in columns)}]
    gone = [name for name in key if name not in seen and name not in own]
    if new or gone or len(seen) < len(told):
        raise SchemaError(f"a new column {new[0]}" if new else "a schema without the key")
    found = []
    for column in columns:
        one = seen[column.name].with_type(column.type) if column.name in seen else column
        one = one.with_encoding(encodings[column.name]) if column.name in encodings else one
        if not supports(one):
            raise SchemaError(f"column {one.name} ({one.type}, {one.encoding})")
        found.append(one)
    return tuple(found)
