"""Records in Avro become the JSON that Debezium would have written."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from lakecdc.ingest.formats.avro_registry import split_id
from lakecdc.ingest.formats.avro_schema import read_schema
from tests.lakecdc.ingest.formats.avro import body

NESTED = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "null"}]}


def in_json(kind: Any, value: Any, named: Any = "null") -> str:
    """Return the JSON of a value, written after a null of a type that it may refer to."""
    fields = [{"name": "none", "type": ["null", named] if named != "null" else named}, {"name": "a", "type": kind}]
    document = {"type": "record", "name": "R", "namespace": "a.b", "fields": fields}
    record = read_schema(json.dumps(document)).to_json(io.BytesIO(body(document, {"none": None, "a": value})))
    return record.decode().removeprefix('{"none":null,"a":').removesuffix("}")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("double", 1e-7, "1.0E-7"),
        ("double", 12345678.0, "1.2345678E7"),
        ("double", 0.1 + 0.2, "0.30000000000000004"),
        ("double", -0.0, "-0.0"),
        ("double", float("nan"), '"NaN"'),
        ("double", float("-inf"), '"-Infinity"'),
        ("float", 1.1, "1.1"),
        ("float", 3.4028235e38, "3.4028235E38"),
        ("float", float("inf"), '"Infinity"'),
        ("long", -(2**63), "-9223372036854775808"),
        ("bytes", b"\xff" * 100, '"' + "/" * 133 + 'w=="'),
        ({"type": "fixed", "name": "F", "size": 2}, b"\1\2", '"AQI="'),
        ({"type": "enum", "name": "E", "symbols": ["ok", "sad"]}, "sad", '"sad"'),
        ({"type": "int", "logicalType": "date"}, 5, "5"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 5, "5"),
        ({"type": "string", "logicalType": "uuid"}, "no uuid", '"no uuid"'),
        (["null", "int", "string", "double"], 1e9, "1.0E9"),
        (["string"], "é", '"é"'),
        ({"type": "array", "items": ["null", "float"]}, [0.5, None], "[0.5,null]"),
        ({"type": "map", "values": "bytes"}, {"k": b"a"}, '{"k":"YQ=="}'),
        (NESTED, {"x": 1.0, "y": None}, '{"x":1.0,"y":null}'),
    ],
)
def test_values_are_written_as_in_json(kind: Any, value: Any, text: str) -> None:
    assert in_json(kind, value) == text


@pytest.mark.parametrize("name", ["N", "a.b.N"])
def test_names_refer_to_declared_types(name: str) -> None:
    assert in_json([name, "null"], {"x": 2.5, "y": None}, named=NESTED) == '{"x":2.5,"y":null}'


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("string", b"\x09abcdef"),
        ("string", b"\x04\xff\xff"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fa"),
        ("double", b"1234567"),
        ({"type": "fixed", "name": "F", "size": 2}, b"1"),
        ({"type": "enum", "name": "E", "symbols": ["ok"]}, b"\x08"),
        (["null", "int"], b"\x08"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x02"),
        ("int", b""),
    ],
)
def test_bytes_that_do_not_fit_are_an_error(kind: Any, data: bytes) -> None:
    schema = read_schema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    with pytest.raises((EOFError, ValueError, IndexError)):
        schema.to_json(io.BytesIO(data))


def test_ids_are_in_headers_or_before_records() -> None:
    assert split_id(b"\0\0\0\1\0record", None, 4) == (256, b"record")
    assert split_id(b"\0" * 8 + b"\1record", None, 8) == (1, b"record")
    assert split_id(b"record", (7).to_bytes(8, "big"), 4) == (7, b"record")
    for data in (b"", b"\0\0\0\0\1", b'{"op":"c"}'):
        assert split_id(data, None, 4) == (None, data)
    for header in (b"", b"\xff" * 8, b"\0" * 9):
        assert split_id(b"record", header, 4) == (None, b"record")


def test_annotations_are_for_connect_and_not_for_fastavro() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    nested = {"type": {"type": "int", "connect.name": "inner"}, "connect.name": "outer"}
    fields = [{"name": "a", "type": decimal}, {"name": "b", "type": nested}]
    schema = read_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert json.loads(schema.text)["fields"] == [{"name": "a", "type": "bytes"}, {"name": "b", "type": "int"}]
    parameters = {"scale": 2, "connect.decimal.precision": 4}
    assert json.loads(schema.connect)["fields"] == [
        {"field": "a", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters},
        {"field": "b", "type": "int32", "name": "inner"},
    ]
