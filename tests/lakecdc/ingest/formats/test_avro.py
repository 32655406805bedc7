"""Debezium in Avro decodes like Debezium in JSON, with any schemas and among garbage."""

from __future__ import annotations

import datetime
import json
import random
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.contract.errors import SourceUnavailableError, SpecError
from lakecdc.contract.runtime import source_packages
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.formats import RegistrySettings
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded
from lakecdc.ingest.fold import fold
from lakecdc.ingest.formats.avro_registry import Registry
from lakecdc.ingest.formats.avro_schema import AvroSchema, read_schema
from tests.lakecdc.ingest.formats.avro import (
    Document,
    Record,
    Schemas,
    decode_avro,
    envelope_schema,
    key_schema,
    optional,
    served,
)
from tests.lakecdc.ingest.formats.decoding import PRODUCTS, decode_lines, rejections, state
from tests.lakecdc.ingest.formats.stories import COLUMNS, STORY, debezium_mysql, final

ID = {"name": "id", "type": "int"}
PRODUCT = [
    ID,
    {"name": "name", "type": "string"},
    {"name": "description", **optional("string")},
    {"name": "weight", **optional("double")},
]
PLACEHOLDER = b"__debezium_unavailable_value"


def bomb(levels: int) -> Document:
    """Return a schema of few names, each used twice by the next one."""
    inner: Document = {"type": "record", "name": "R0", "fields": [ID]}
    for n in range(1, levels):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{n - 1}"}]
        inner = {"type": "record", "name": f"R{n}", "fields": fields}
    return inner


def story(schemas: Schemas, key: int, value: int) -> list[Record]:
    events = [json.loads(line) for line in debezium_mysql(STORY)]
    ids = [(event["after"] or event["before"])["id"] for event in events]
    return [
        (schemas.message(key, {"id": i}), schemas.message(value, event)) for i, event in zip(ids, events, strict=True)
    ]


def test_a_shuffled_and_repeated_story_ends_in_the_same_state(spark: SparkSession) -> None:
    schemas = Schemas({1: key_schema(ID), 70_000: envelope_schema(PRODUCT)})
    records = story(schemas, 1, 70_000)
    records += records[3:9]
    random.Random(1).shuffle(records)
    good = records[0][1]
    assert good is not None
    garbage = [
        b"",
        b"\0\0\1",
        b'{"op":"c"}',
        b"\0" + (99).to_bytes(4, "big") + good[5:],
        good[:20],
        good[:5] + b"\xff" * 9,
    ]
    decoded = decode_avro(spark, schemas, [*records, *[(None, value) for value in garbage]], PRODUCTS)
    assert [(*r[:3], round(r[3], 4)) for r in state(decoded, COLUMNS)] == final(STORY)
    assert sorted(c.name for c in decoded.columns) == sorted(COLUMNS)
    rejected = rejections(decoded)
    assert [rule for rule, _ in rejected] == ["not-avro"] * 5 + ["unknown-schema"]
    assert {reason for rule, reason in rejected if rule == "not-avro"} == {
        "the value does not begin with the id of a schema",
        "the bytes do not fit schema 70000",
    }
    assert rejected[-1][1] == "the registry has no schema 99"
    assert decoded.rejected is not None
    assert sorted(bytes(r["value"]) for r in decoded.rejected.messages.collect()) == sorted(garbage)


def annotated(kind: str, semantic: str, **more: Any) -> Document:
    return {"type": kind, "connect.version": 1, "connect.name": semantic, **more}


VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
_CONNECT = "org.apache.kafka.connect.data"
_LONG = bytes(range(100))
#: column: Avro type, Connect type, value in Avro
TYPES: dict[str, tuple[Any, Document, Any]] = {
    "id": ("int", {"type": "int32"}, 1),
    "i16": ({"type": "int", "connect.type": "int16"}, {"type": "int16"}, -7),
    "big": ("long", {"type": "int64"}, 2**53 + 1),
    "f32": ("float", {"type": "float"}, 0.5),
    "f64": ("double", {"type": "double"}, -2.25),
    "yes": ("boolean", {"type": "boolean"}, True),
    # base64 of MIME would break it into lines
    "raw": ("bytes", {"type": "bytes"}, _LONG),
    "fixed": ({"type": "fixed", "name": "F2", "size": 2}, {"type": "bytes"}, b"\1\2"),
    "mood": ({"type": "enum", "name": "Mood", "symbols": ["ok", "sad"]}, {"type": "string"}, "sad"),
    "price": (
        {
            **annotated("bytes", f"{_CONNECT}.Decimal", logicalType="decimal", precision=12, scale=2),
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
        },
        {
            "type": "bytes",
            "name": f"{_CONNECT}.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "12"},
        },
        Decimal("-1234567.89"),
    ),
    "number": (
        VARIABLE,
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        {"scale": 3, "value": (-12345).to_bytes(4, "big", signed=True)},
    ),
    "born": (annotated("int", "io.debezium.time.Date"), {"type": "int32", "name": "io.debezium.time.Date"}, -1),
    "at": (
        annotated("long", "io.debezium.time.MicroTimestamp"),
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        1_700_000_000_123_456,
    ),
    "clock": (
        annotated("long", "io.debezium.time.MicroTime"),
        {"type": "int64", "name": "io.debezium.time.MicroTime"},
        3_600_000_001,
    ),
    "zoned": (
        annotated("string", "io.debezium.time.ZonedTimestamp"),
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2024-01-02T03:04:05.5Z",
    ),
    "tags": ({"type": "array", "items": ["null", "string"]}, {"type": "array"}, ["a", None]),
    "blobs": ({"type": "array", "items": "bytes"}, {"type": "array"}, [b"\0", _LONG]),
    "pairs": ({"type": "map", "values": "string"}, {"type": "map"}, {"a": "b"}),
}
_IN_JSON: dict[str, Any] = {
    "raw": b64encode(_LONG).decode(),
    "fixed": "AQI=",
    "price": b64encode((-123456789).to_bytes(5, "big", signed=True)).decode(),
    "number": {"scale": 3, "value": b64encode((-12345).to_bytes(4, "big", signed=True)).decode()},
    "blobs": ["AA==", b64encode(_LONG).decode()],
}


def event(op: str, row: Document | None, lsn: int, before: Document | None = None) -> Document:
    source = {"connector": "postgresql", "ts_ms": lsn, "db": "d", "schema": "shop", "table": "products", "lsn": lsn}
    return {"op": op, "before": before, "after": row, "source": {**source, "snapshot": "false"}, "ts_ms": lsn}


def rows_of(decoded: Decoded) -> list[Any]:
    assert decoded.rows is not None
    return fold(decoded.rows.frame).orderBy("key").collect()


def test_avro_types_equal_those_of_json_with_schemas(spark: SparkSession) -> None:
    row, nothing = {n: v for n, (_, _, v) in TYPES.items()}, dict.fromkeys(TYPES, None) | {"id": 2}
    fields = [{"name": n, **(optional(kind) if n != "id" else {"type": kind})} for n, (kind, _, _) in TYPES.items()]
    schemas = Schemas({5: envelope_schema(fields)})
    messages = [(None, schemas.message(5, event("c", r, i + 1))) for i, r in enumerate((row, nothing))]
    in_avro = decode_avro(spark, schemas, messages, PRODUCTS)
    connect = {"fields": [{"field": "after", "fields": [{"field": n, **c} for n, (_, c, _) in TYPES.items()]}]}
    payloads = [event("c", r, i + 1) for i, r in enumerate(({**row, **_IN_JSON}, nothing))]
    lines = [json.dumps({"schema": connect, "payload": payload}) for payload in payloads]
    in_json = decode_lines(spark, "debezium-json", lines, engine="spark")
    assert in_avro.columns == in_json.columns
    assert rejections(in_avro) == rejections(in_json) == []
    assert [row["row"] for row in rows_of(in_avro)] == [row["row"] for row in rows_of(in_json)]
    first = rows_of(in_avro)[0]["row"]
    assert (first["price"], first["number"], first["born"]) == (
        Decimal("-1234567.89"), "-12.345", datetime.date(1969, 12, 31)
    )  # fmt: skip
    assert (first["raw"], first["mood"], first["clock"]) == (_LONG, "sad", "01:00:00.000001")


def money(scale: int) -> Document:
    return {"name": "price", **optional({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale})}


def test_schemas_may_change_within_a_batch(spark: SparkSession) -> None:
    """A column is added, one is dropped, and a decimal's scale changes; the key's schema has a new id as well."""
    old = envelope_schema([ID, money(2), {"name": "gone", "type": "string"}])
    new = envelope_schema([{"name": "id", "type": "long"}, money(4), {"name": "note", **optional("string")}])
    schemas = Schemas({1: key_schema(ID), 2: old, 3: key_schema({"name": "id", "type": "long"}), 4: new})
    rows: list[tuple[int, int, str, Document]] = [
        (1, 2, "c", {"id": 1, "price": Decimal("1.25"), "gone": "g"}),
        (1, 2, "c", {"id": 2, "price": Decimal("2.50"), "gone": "h"}),
        (3, 4, "u", {"id": 2, "price": Decimal("2.5001"), "note": "n"}),
        (3, 4, "c", {"id": 3, "price": Decimal("-0.0001"), "note": None}),
    ]
    records = [
        (schemas.message(key, {"id": row["id"]}), schemas.message(value, event(op, row, lsn)))
        for lsn, (key, value, op, row) in enumerate(rows, 10)
    ]
    decoded = decode_avro(spark, schemas, records, PRODUCTS)
    assert [(c.name, c.type) for c in decoded.columns] == [
        ("id", "bigint"), ("price", "decimal(12,4)"), ("note", "string"), ("gone", "string")
    ]  # fmt: skip
    assert state(decoded, ("id", "price", "note", "gone")) == [
        (1, Decimal("1.2500"), None, "g"),
        (2, Decimal("2.5001"), "n", None),
        (3, Decimal("-0.0001"), None, None),
    ]
    assert rejections(decoded) == []


@pytest.mark.soak
def test_a_decimals_scale_may_change_in_json(spark: SparkSession) -> None:
    lines = []
    for number, (scale, unscaled) in enumerate([(2, 125), (4, 25001), (-2, 123)], 1):
        decimal = {
            "field": "price",
            "type": "bytes",
            "name": f"{_CONNECT}.Decimal",
            "parameters": {"scale": str(scale), "connect.decimal.precision": "10"},
        }
        schema = {"fields": [{"field": "after", "fields": [{"field": "id", "type": "int32"}, decimal]}]}
        row = {"id": number, "price": b64encode(unscaled.to_bytes(4, "big")).decode()}
        lines.append(json.dumps({"schema": schema, "payload": event("c", row, number)}))
    decoded = decode_lines(spark, "debezium-json", lines, engine="spark")
    assert state(decoded, ("id", "price")) == [(1, Decimal("1.2500")), (2, Decimal("2.5001")), (3, Decimal("12300"))]


def in_headers(**ids: int) -> dict[str, bytes]:
    return {f"apicurio.{part}.globalId": number.to_bytes(8, "big") for part, number in ids.items()}


def test_placeholders_tombstones_and_other_avro_messages_are_read(spark: SparkSession) -> None:
    fields = [ID, {"name": "doc", **optional("string")}, {"name": "raw", **optional("bytes")}]
    heartbeat = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
    schemas = Schemas({1: key_schema(ID), 2: envelope_schema(fields), 3: heartbeat})
    row = {"id": 1, "doc": PLACEHOLDER.decode(), "raw": PLACEHOLDER}
    key = [schemas.message(1, {"id": i}) for i in range(6)]
    records: list[Record] = [
        (key[1], schemas.message(2, event("u", row, 10))),
        (key[2], schemas.message(2, event("c", {"id": 2, "doc": "d", "raw": b"r"}, 11))),
        (key[2], schemas.message(2, event("d", None, 12, before={"id": 2, "doc": "", "raw": None}))),
        (key[2], None),
        (key[3], schemas.message(2, event("c", {"id": 3, "doc": "d", "raw": b"r"}, 13))),
        (key[3], None),
        (schemas.message(1, {"id": 9}), schemas.message(3, {"ts_ms": 5})),
        (key[4], schemas.message(2, event("d", None, 14))),
        (key[5], schemas.message(2, event("c", {**row, "id": 5}, 15)), {"__debezium.oldkey": key[4]}),
        # as Apicurio's converters write it
        (key[0][5:], schemas.message(2, event("d", None, 16))[5:], in_headers(key=1, value=2)),
    ]
    decoded = decode_avro(spark, schemas, records, Target("shop.products"))
    assert decoded.key == ("id",)
    last = {r["key"]["id"]: (r["op"], r["open"]) for r in rows_of(decoded)}
    assert last == {
        1: ("u", ["doc", "raw"]),
        2: ("d", None),
        3: ("d", None),
        4: ("d", None),
        5: ("c", ["doc", "raw"]),
        0: ("d", None),
    }
    assert {r["key"]["id"]: r["old_key"]["id"] for r in rows_of(decoded) if r["old_key"]} == {5: 4}
    assert rejections(decoded) == []


def test_a_registry_is_asked_once_and_retried_while_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = Schemas({7: key_schema(ID), 8: json.dumps({"schema": "syntax", "schemaType": "PROTOBUF"})}, failures=1)
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    with served(schemas) as url:
        registry = Registry(RegistrySettings(url, user="u", password={"env": "REGISTRY_PASSWORD"}))
        assert registry.key_names(b"\0" + (7).to_bytes(4, "big") + b"x") == {"id"}
        answers = registry.schemas([7, 8, 9])
        assert isinstance(answers[7], AvroSchema)
        assert answers[8] == "schema 8 cannot be used: it is of type PROTOBUF"
        assert answers[9] == "the registry has no schema 9"
        assert sorted(path for path, _ in schemas.requests) == [f"/schemas/ids/{n}" for n in (7, 7, 8, 9)]
        assert {headers["Authorization"] for _, headers in schemas.requests} == {"Basic dTpzZWNyZXQ="}
        native = Registry(
            RegistrySettings(url, path="/ids/globalIds/{id}", id_bytes=8, token={"env": "REGISTRY_PASSWORD"})
        )
        assert native.key_names(b"\0" + (7).to_bytes(8, "big") + b"x") == {"id"}
        assert schemas.requests[-1][1]["Authorization"] == "Bearer secret"
        assert native.key_names(b"x", [("other", None), ("apicurio.key.globalId", (7).to_bytes(8, "big"))]) == {"id"}
        assert native.key_names(b"x", []) is native.key_names(None) is None
    with pytest.raises(SourceUnavailableError, match="cannot be queried"):
        Registry(RegistrySettings(url)).schema(7)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('"string"', "not a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "R contains itself"),
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": "Lost"}]}', "Lost is not declared"),
        ('{"type": "record", "name": "R", "fields": [{"name": "r"}]}', "not an Avro schema"),
        ("{", "Expecting"),
        ('{"type": "record", "name": "R", "fields": ' + "[" * 10_000 + "]" * 10_000 + "}", "nested too deep"),
        (json.dumps(bomb(30)), "more than 20000 types"),
        (json.dumps(key_schema({"name": "a", "type": {"type": "array", "items": "null"}})), "any number of items"),
        (json.dumps(key_schema({"name": "a", "type": "null"})), "any number of them"),
        (json.dumps(key_schema({"name": "a b", "type": "enum", "symbols": 5})), "Avro schema|not declared"),
    ],
)
def test_unusable_schemas_are_reported(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_schema(text)


@pytest.mark.soak
def test_thousands_of_unknown_ids_and_schemas_are_rejected(spark: SparkSession) -> None:
    schemas = Schemas({1: key_schema(ID), 2: envelope_schema([ID]), 3: bomb(30)})
    records: list[Record] = [(None, b"\0" + number.to_bytes(4, "big") + b"noise") for number in range(1000, 3000)]
    records.append((None, b"\0" + (3).to_bytes(4, "big") + b"noise"))
    for place in (0, 1000, 2002):
        records.insert(place, (schemas.message(1, {"id": place}), schemas.message(2, event("c", {"id": place}, place))))
    decoded = decode_avro(spark, schemas, records, PRODUCTS)
    assert [row["row"]["id"] for row in rows_of(decoded)] == [0, 1000, 2002]
    assert {rule for rule, _ in rejections(decoded)} == {"unknown-schema"} and decoded.rejections == 2001


def test_settings_of_another_format_are_refused() -> None:
    targets = (PRODUCTS,)
    kafka = {"type": "kafka", "bootstrap_servers": "b:9092", "topics": ["t"], "format": "debezium-avro"}
    registry = {"url": "https://registry.example.com", "token": {"env": "TOKEN"}}
    assert source_packages(parse_source({**kafka, "registry": registry}, targets)) == []
    refused: list[Document] = [
        kafka,
        {**kafka, "registry": registry, "format": "json"},
        {**kafka, "registry": {"url": "registry:8081"}},
        {**kafka, "registry": {"url": "http://u:p@registry"}},
        {**kafka, "registry": {"url": "http://registry", "path": "/schemas"}},
        {**kafka, "registry": {"url": "http://registry", "user": "u"}},
        {**kafka, "registry": {**registry, "user": "u", "password": {"env": "P"}}},
        {**kafka, "registry": {**registry, "id_bytes": 5}},
        {"type": "files", "path": "/x", "format": "debezium-avro", "records": "kafka"},
    ]
    for document in refused:
        with pytest.raises(SpecError):
            parse_source(document, targets)
