"""Read records in Avro as Debezium's JSON, with schemas in Kafka Connect's notation.

fastavro decodes with a schema without logical types, so values are as Debezium wrote them: days, microseconds, unscaled
bytes. Their meaning is in the annotations ``connect.name`` and ``connect.parameters`` of Kafka Connect's Avro
converters, else in the logical types, translated to the notation that :mod:`debezium_schema` reads.

Source: Apache Avro 1.12 specification, "Schema Declaration" and "Logical Types"; ``AvroData`` of the converters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, BinaryIO

import msgspec
import numpy as np

Node = dict[str, Any]
_CONNECT = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "bytes": "bytes",
    "fixed": "bytes",
    "record": "struct",
    "error": "struct",
    "array": "array",
    "map": "map",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LOGICAL = {
    "date": "io.debezium.time.Date",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "decimal": _DECIMAL,
}
# the members needed for decoding a declared type; all others only describe it
_STRUCTURE = ("type", "name", "namespace", "symbols", "size")
_NAMED = ("record", "error", "enum", "fixed")
_INNER = {"array": "items", "map": "values"}
# more than any table has; a few names, each used twice by the next one, can stand for any number of types
_MOST_TYPES = 20_000
_MOST_SCHEMAS = 64
# our logical type of fractions, which fastavro gives to us
_FRACTION = "lakecdc-fraction"
# Java writes other numbers with exponents
_WITHOUT_EXPONENT = (1e-3, 1e7)
# writes bytes as base64
_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class AvroSchema:
    """A record's schema.

    :param text: JSON for fastavro.
    :param connect: JSON of the same schema in Kafka Connect's notation.
    :param members: names of the record's fields.
    """

    text: str
    connect: bytes
    members: tuple[str, ...]

    def to_json(self, stream: BinaryIO) -> bytes:
        """Read a record as the JSON that Debezium would have written; other bytes raise errors of any type."""
        return _ENCODE(_reader(self.text)(stream))


@lru_cache(_MOST_SCHEMAS)
def _reader(text: str) -> Callable[[BinaryIO], Any]:
    """Return a function that reads a record; raise a :class:`ValueError` if fastavro refuses the schema."""
    # only needed with Avro, and slow to import
    from fastavro import parse_schema, schemaless_reader
    from fastavro.read import LOGICAL_READERS
    from fastavro.schema import SchemaParseException

    LOGICAL_READERS[f"double-{_FRACTION}"] = lambda value, *_: msgspec.Raw(write_double(value))
    LOGICAL_READERS[f"float-{_FRACTION}"] = lambda value, *_: msgspec.Raw(write_float(value))
    try:
        schema = parse_schema(json.loads(text))
    except SchemaParseException as error:
        raise ValueError(str(error)) from error
    return lambda stream: schemaless_reader(stream, schema, None)


def write_double(value: float) -> bytes:
    """Return the JSON of a double as Java writes it."""
    return _fraction(value, repr(value))


def write_float(value: float) -> bytes:
    """Return the JSON of a float as Java writes it."""
    return _fraction(value, str(np.float32(value)))


def _fraction(value: float, digits: str) -> bytes:
    """Return the JSON of a number, given its shortest digits."""
    if not math.isfinite(value):
        digits = '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    elif value and not _WITHOUT_EXPONENT[0] <= abs(value) < _WITHOUT_EXPONENT[1]:
        number, _, exponent = f"{Decimal(digits).normalize():E}".partition("E")
        digits = f"{number if '.' in number else number + '.0'}E{int(exponent)}"
    return digits.encode()


def read_schema(text: str) -> AvroSchema:
    """Read a schema in JSON.

    :raises ValueError: it is not a schema, or not of a record with fields, or of a type that is recursive or too large.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("type") != "record" or not document.get("fields"):
            raise ValueError("it is not a record with fields")
        root = _Types().read(document)
        if root.is_empty:
            raise ValueError("its records have no bytes, so a few bytes can announce any number of them")
        schema = AvroSchema(json.dumps(root.avro), _ENCODE(root.connect), tuple(f["name"] for f in document["fields"]))
        _reader(schema.text)
        return schema
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema ({error!r})") from error
    except RecursionError as error:
        raise ValueError("its types are nested too deep") from error


@dataclass(frozen=True)
class _Type:
    """An Avro type as fastavro and Kafka Connect describe it.

    :param avro: the schema for fastavro.
    :param connect: the schema in Kafka Connect's notation.
    :param size: number of types in it, each name replaced by its type.
    :param is_empty: its values have no bytes.
    """

    avro: Any
    connect: Node
    size: int = 1
    is_empty: bool = False


class _Types:
    """Read the types of a schema."""

    def __init__(self) -> None:
        self._names: dict[str, _Type] = {}

    def read(self, node: Any, namespace: str = "", inside: tuple[str, ...] = ()) -> _Type:
        """Read a type within others; raise a :class:`ValueError` for one that cannot be used."""
        if isinstance(node, list):
            return _union([self.read(n, namespace, inside) for n in node])
        if isinstance(node, str):
            return self._type_of(node, namespace, inside)
        kind = node["type"]
        if kind in _NAMED:
            return self._declared(node, namespace, inside)
        part = _INNER.get(kind) if isinstance(kind, str) else None
        if part is None:
            # a property beside a nested declaration, such as of a field, describes it
            inner = self.read(kind, namespace, inside)
            return replace(inner, connect=_annotated(inner.connect, node))
        inner = self.read(node[part], namespace, inside)
        if kind == "array" and inner.is_empty:
            raise ValueError("a few bytes can announce any number of items of an array")
        return _Type({"type": kind, part: inner.avro}, _annotated({"type": kind}, node), inner.size + 1)

    def _type_of(self, name: str, namespace: str, inside: tuple[str, ...]) -> _Type:
        full = name if "." in name else f"{namespace}.{name}"
        if full in inside:
            raise ValueError(f"its type {full} contains itself")
        known = self._names.get(full) or self._names.get(name)
        if known:
            return replace(known, avro=name)
        if name not in (*_CONNECT, "string", "null"):
            raise ValueError(f"its type {name} is not declared")
        avro = {"type": name, "logicalType": _FRACTION} if name in ("float", "double") else name
        return _Type(avro, {"type": _CONNECT.get(name, "string")}, is_empty=name == "null")

    def _declared(self, node: Node, namespace: str, inside: tuple[str, ...]) -> _Type:
        full = node["name"] if "." in node["name"] else f"{node.get('namespace', namespace)}.{node['name']}"
        space, within = full.rpartition(".")[0], (*inside, full)
        fields = [(f["name"], self.read(f["type"], space, within)) for f in node.get("fields", ())]
        avro = {key: node[key] for key in _STRUCTURE if key in node}
        connect = _annotated({"type": _CONNECT.get(node["type"], "string")}, node)
        is_empty = node.get("size") == 0
        if connect["type"] == "struct":
            avro["fields"] = [{"name": name, "type": kind.avro} for name, kind in fields]
            connect["fields"] = [{"field": name, **kind.connect} for name, kind in fields]
            is_empty = all(kind.is_empty for _, kind in fields)
        size = 1 + sum(kind.size for _, kind in fields)
        if size > _MOST_TYPES:
            raise ValueError(f"it has more than {_MOST_TYPES} types after replacing names by types")
        self._names[full] = _Type(avro, connect, size, is_empty)
        return self._names[full]


def _union(branches: list[_Type]) -> _Type:
    values = [branch for branch in branches if branch.avro != "null"]
    connect = values[0].connect if len(values) == 1 else {"type": "string"}
    return _Type([branch.avro for branch in branches], connect, 1 + sum(branch.size for branch in branches))


def _annotated(connect: Node, node: Node) -> Node:
    """Add the meaning of a type, unless it has one."""
    semantic = node.get("connect.name") or _LOGICAL.get(str(node.get("logicalType")))
    if not semantic or "name" in connect:
        return connect
    return {**connect, "name": semantic, **({"parameters": _decimal(node)} if semantic == _DECIMAL else {})}


def _decimal(node: Node) -> Mapping[str, Any]:
    given = node.get("connect.parameters")
    if given:
        return dict(given)
    precision = int(node.get("precision", 38))
    # converters write 64 if the source has none
    return {"scale": node.get("scale", 0), "connect.decimal.precision": min(precision, 38)}
