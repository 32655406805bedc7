"""Prepare Avro schemas for Spark and this library.

Spark decodes with a schema without logical types, so values are as Debezium wrote them: days, microseconds, unscaled
bytes. Their meaning is in the annotations ``connect.name`` and ``connect.parameters`` of Kafka Connect's Avro
converters, else in the logical types, translated to the notation that :mod:`debezium_schema` reads.

Source: Apache Avro 1.12 specification, "Schema Declaration" and "Logical Types"; ``AvroData`` of the converters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

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
# the members needed for decoding; all others only describe a schema
_STRUCTURE = ("type", "name", "namespace", "symbols", "size")
_NAMED = ("record", "enum", "fixed", "error")
# more than any table has; a few names, each used twice by the next one, can stand for any number of types
_MOST_TYPES = 20_000


@dataclass(frozen=True)
class AvroSchema:
    """A record's schema.

    :param text: JSON for Spark's decoder.
    :param connect: JSON of the same schema in Kafka Connect's notation.
    :param root: the record with every name replaced by its type; unions are ``{"type": "union"}``.
    """

    text: str
    connect: str
    root: Node = field(compare=False)

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(f["name"] for f in self.root["fields"])

    def is_there(self, record: Column) -> Column:
        """Check whether bytes were decoded; otherwise Spark returns a record of nulls."""
        required = [f["name"] for f in self.root["fields"] if not _is_optional(f["type"])]
        return reduce(or_, (record.getField(name).isNotNull() for name in (required[:1] or self.members)))

    def plain(self, record: Column) -> Column:
        """Return the decoded record with bytes as base64, like the JSON converter."""
        return _plain(self.root, record)


def read_schema(text: str) -> AvroSchema:
    """Read a schema in JSON.

    :raises ValueError: it is not a schema, or not of a record with fields, or of a type that is recursive or too large.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("type") != "record" or not document.get("fields"):
            raise ValueError("it is not a record with fields")
        root = _inline(document, {}, "", ())
        if _size(root, {}) > _MOST_TYPES:
            raise ValueError(f"it has more than {_MOST_TYPES} types after replacing names by types")
        return AvroSchema(json.dumps(_stripped(document)), json.dumps(_connect("", root)), root)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema ({error!r})") from error
    except RecursionError as error:
        raise ValueError("its types are nested too deep") from error


def _stripped(node: Any) -> Any:
    if isinstance(node, list):
        return [_stripped(n) for n in node]
    if not isinstance(node, dict):
        return node
    stripped = {key: _stripped(node[key]) if key == "type" else node[key] for key in _STRUCTURE if key in node}
    for inner in ("items", "values"):
        if inner in node:
            stripped[inner] = _stripped(node[inner])
    if "fields" in node:
        stripped["fields"] = [{"name": f["name"], "type": _stripped(f["type"])} for f in node["fields"]]
    return stripped


def _inline(node: Any, names: dict[str, Any], namespace: str, inside: tuple[str, ...]) -> Node:
    if isinstance(node, list):
        return {"type": "union", "branches": [_inline(n, names, namespace, inside) for n in node]}
    if isinstance(node, str):
        full = node if "." in node else f"{namespace}.{node}"
        if full in inside:
            raise ValueError(f"its type {full} contains itself")
        return names[full] if full in names else names[node] if node in names else {"type": _known(node)}
    kind = node["type"]
    if isinstance(kind, dict | list):
        # a property beside a nested declaration, such as of a field, describes it
        return {**{k: v for k, v in node.items() if k != "type"}, **_inline(kind, names, namespace, inside)}
    if kind in _NAMED:
        return _named(node, names, namespace, inside)
    inlined = {**node}
    for inner in ("items", "values"):
        if inner in node:
            inlined[inner] = _inline(node[inner], names, namespace, inside)
    return inlined if kind in ("array", "map") else {**inlined, **_inline(kind, names, namespace, inside)}


def _named(node: Node, names: dict[str, Any], namespace: str, inside: tuple[str, ...]) -> Node:
    full = node["name"] if "." in node["name"] else f"{node.get('namespace', namespace)}.{node['name']}"
    space = full.rpartition(".")[0]
    inlined = {**node, "type": "record" if node["type"] == "error" else node["type"]}
    if "fields" in node:
        within = (*inside, full)
        inlined["fields"] = [{**f, "type": _inline(f["type"], names, space, within)} for f in node["fields"]]
    names[full] = inlined
    return inlined


def _size(node: Node, known: dict[int, int]) -> int:
    """Count the types of a schema, each name replaced by its type; ``known`` has the sizes of nodes by identity."""
    if id(node) not in known:
        inner = [*node.get("branches", ()), *(f["type"] for f in node.get("fields", ()))]
        inner += [node[part] for part in ("items", "values") if part in node]
        known[id(node)] = 1 + sum(_size(one, known) for one in inner)
    return known[id(node)]


def _known(kind: str) -> str:
    if kind not in (*_CONNECT, "string", "null", "enum"):
        raise ValueError(f"its type {kind} is not declared")
    return kind


def _value_type(node: Node) -> Node:
    """Return the type of an optional value besides null."""
    branches = [b for b in node["branches"] if b["type"] != "null"] if node["type"] == "union" else []
    return branches[0] if len(branches) == 1 else node


def _is_optional(node: Node) -> bool:
    return node["type"] == "null" or (node["type"] == "union" and any(b["type"] == "null" for b in node["branches"]))


def _connect(name: str, node: Node) -> Node:
    of = _value_type(node)
    semantic = of.get("connect.name") or _LOGICAL.get(str(of.get("logicalType")))
    connect: Node = {"field": name, "type": _CONNECT.get(of["type"], "string")}
    if semantic:
        connect["name"] = semantic
    if semantic == _DECIMAL:
        connect["parameters"] = _decimal(of)
    if of["type"] == "record":
        connect["fields"] = [_connect(f["name"], f["type"]) for f in of["fields"]]
    return connect


def _decimal(node: Node) -> Mapping[str, Any]:
    given = node.get("connect.parameters")
    if given:
        return dict(given)
    precision = int(node.get("precision", 38))
    # converters write 64 if the source has none
    return {"scale": node.get("scale", 0), "connect.decimal.precision": min(precision, 38)}


def _has_bytes(node: Node) -> bool:
    of = _value_type(node)
    inner = [f["type"] for f in of.get("fields", ())] + [of[k] for k in ("items", "values") if k in of]
    return of["type"] in ("bytes", "fixed") or any(_has_bytes(i) for i in inner)


def _plain(node: Node, value: Column) -> Column:
    of = _value_type(node)
    if not _has_bytes(of):
        return value
    if of["type"] == "array":
        return F.transform(value, lambda x: _plain(of["items"], x))
    if of["type"] == "map":
        return F.transform_values(value, lambda _, x: _plain(of["values"], x))
    if of["type"] != "record":
        # Spark's has a line break every 76 characters
        return F.replace(F.base64(value), F.lit("\r\n"))
    members = [_plain(f["type"], value.getField(f["name"])).alias(f["name"]) for f in of["fields"]]
    return F.when(value.isNotNull(), F.struct(*members))
