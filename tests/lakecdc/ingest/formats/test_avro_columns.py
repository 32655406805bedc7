"""Records that are read together become the same JSON as each alone, or none if their bytes do not fit."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecdc.ingest.formats import avro_columns
from lakecdc.ingest.formats.avro_columns import PADDING, read_records
from lakecdc.ingest.formats.avro_registry import split_id
from lakecdc.ingest.formats.avro_schema import AvroSchema, read_schema
from lakecdc.ingest.formats.debezium_avro import Schemas
from tests.lakecdc.ingest.formats.avro import Document, body, optional
from tests.lakecdc.ingest.formats.fuzz import mutated

TEXTS = ["", "plain", 'a "quoted" \\ path', "two\nlines", "é", "\U0001f600", "\x7f", "x" * 300]
NESTED: Document = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "x", **optional("double")}, {"name": "y", "type": "null"}],
}
#: type of a field, and a random value
KINDS: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "null": ("null", lambda rng: None),
    "boolean": ("boolean", lambda rng: rng.random() < 0.5),
    "int": ("int", lambda rng: rng.randrange(-(2**31), 2**31) >> rng.randrange(32)),
    "long": ("long", lambda rng: rng.randrange(-(2**63), 2**63) >> rng.randrange(64)),
    "float": ("float", lambda rng: rng.choice([0.0, -1.5, 1e-7, 3e38, float("nan"), float("-inf")])),
    "double": ("double", lambda rng: rng.choice([0.0, -0.0, rng.random(), 1e300, 1e-5, float("nan"), float("inf")])),
    "bytes": ("bytes", lambda rng: rng.randbytes(rng.randrange(9))),
    "string": ("string", lambda rng: rng.choice(TEXTS)),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, lambda rng: rng.randbytes(3)),
    "enum": ({"type": "enum", "name": "E", "symbols": ["ok", "sad"]}, lambda rng: rng.choice(["ok", "sad"])),
    "nullable": (["null", "string"], lambda rng: rng.choice([None, *TEXTS])),
    "any": (["int", "string", "null", "double"], lambda rng: rng.choice([1, "a", None, 0.5])),
    "record": (NESTED, lambda rng: {"x": rng.choice([None, 2.5]), "y": None}),
    "named": (["null", "N"], lambda rng: rng.choice([None, {"x": rng.random(), "y": None}])),
    "nothing": ({"type": "record", "name": "O", "fields": []}, lambda rng: {}),
    "array": (["null", {"type": "array", "items": "int"}], lambda rng: rng.choice([None, [], [1], [300, 2, 3]])),
    "rows": ({"type": "array", "items": ["null", "N"]}, lambda rng: [{"x": rng.random(), "y": None}, None]),
    "map": ({"type": "map", "values": "string"}, lambda rng: rng.choice([{}, {'k"': "v"}])),
}
# a type and those that refer to it
REFERS = ("record", "named", "rows")


def schema_of(kinds: Iterable[str]) -> tuple[Document, AvroSchema]:
    document = {"type": "record", "name": "R", "fields": [{"name": f'{n} "', "type": KINDS[n][0]} for n in kinds]}
    return document, read_schema(json.dumps(document))


def together(schema: AvroSchema, records: Sequence[bytes]) -> list[bytes | None]:
    octets = np.frombuffer(b"".join(records) + bytes(PADDING), np.uint8)
    sizes = np.array([len(record) for record in records])
    return read_records(schema, octets, np.cumsum(sizes) - sizes, np.cumsum(sizes)).to_pylist()


def alone(schema: AvroSchema, record: bytes) -> bytes | None:
    try:
        return schema.to_json(io.BytesIO(record))
    except Exception:
        return None


def assert_same(schema: AvroSchema, records: Sequence[bytes]) -> list[bytes | None]:
    texts = together(schema, records)
    assert texts == [alone(schema, record) for record in records]
    return texts


def written(document: Document, kinds: Iterable[str], rng: random.Random) -> bytes:
    return body(document, {f'{name} "': KINDS[name][1](rng) for name in kinds})


def test_all_types_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, (document, schema) = random.Random(1), schema_of(KINDS)
    records = [written(document, KINDS, rng) for _ in range(300)]
    assert None not in assert_same(schema, records)
    monkeypatch.setattr(avro_columns, "_read_alone", None)
    assert len(together(schema, records)) == 300


def test_many_items_are_read_alone() -> None:
    fields = [
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
    ]
    document = {"type": "record", "name": "R", "fields": fields}
    schema = read_schema(json.dumps(document))
    rows = [{"a": ["a"] * (n % 30), "m": {str(i): i for i in range(n % 7)}} for n in range(300)]
    records = [body(document, row) for row in rows]
    # a block with its size, two blocks, and a map with a name twice
    records += [b"\x01\x04\x02a\x00\x00", b"\x02\x02a\x02\x02b\x00\x00", b"\x00\x04\x02k\x02\x02k\x04\x00"]
    texts = assert_same(schema, records)
    assert texts[-3:] == [b'{"a":["a"],"m":{}}', b'{"a":["a","b"],"m":{}}', b'{"a":[],"m":{"k":2}}']


@pytest.mark.parametrize(
    "kinds",
    [
        ["int", "string", "int"],
        ["int", []],
        ["int", {"type": "fixed", "name": "F", "size": "3"}],
        ["int", {"type": "enum", "name": "E", "symbols": []}],
    ],
)
def test_schemas_that_only_fastavro_reads_are_left_to_it(kinds: list[Any]) -> None:
    names = ["a", "b", "a"]
    fields = [{"name": name, "type": kind} for name, kind in zip(names, kinds, strict=False)]
    schema = read_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert_same(schema, [b"\x02", b"\x02\x02a\x08"] * 150)


@pytest.mark.parametrize("error", [RecursionError, pa.ArrowInvalid])
def test_records_that_cannot_be_read_together_are_read_alone(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def reader(text: str) -> None:
        raise error

    monkeypatch.setattr(avro_columns, "_reader", reader)
    document, schema = schema_of(["int"])
    assert None not in assert_same(schema, [written(document, ["int"], random.Random(1))] * 300)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_records_do_not_affect_others(seed: int) -> None:
    rng = random.Random(seed)
    kinds = ["int", *rng.sample(sorted(KINDS.keys() - {"int", *REFERS}), 4), *REFERS]
    document, schema = schema_of(kinds)
    records = [written(document, kinds, rng) for _ in range(300)]
    whole = {*records[::3]}
    records = [record if record in whole else mutated(rng, record) for record in records]
    texts = assert_same(schema, records)
    assert texts.count(None) > 0
    assert None not in [text for text, record in zip(texts, records, strict=True) if record in whole]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("long", b"\xff" * 9 + b"\x01"),
        ("long", b"\xff" * 10 + b"\x01"),
        ("long", b"\x80" * 20 + b"\x01"),
        ("string", b"\x01"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a"),
        ("string", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"),
        ("string", b"\x06\xed\xa0\x80"),
        ("bytes", b"\x80\x80\x80\x80\x20a"),
        ("enum", b"\x01"),
        ("enum", b"\x04"),
        ("nullable", b"\x01"),
        ("nullable", b"\x03\x02a"),
        ("any", b"\x08"),
        ("array", b"\x02\x01\x02\x02\x00"),
        ("map", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x02"),
        ("boolean", b"\x07"),
        ("double", b"1234567"),
    ],
)
def test_hostile_bytes_are_judged_like_alone(kind: str, data: bytes) -> None:
    document, schema = schema_of(["int", kind])
    good = written(document, ["int", kind], random.Random(3))
    records = [good] * 300
    # at the end as well, where no bytes follow
    records[50] = records[299] = b"\x02" + data
    texts = assert_same(schema, records)
    assert None not in texts[:50] + texts[51:299]


def test_every_prefix_of_a_record_is_judged_like_alone() -> None:
    document, schema = schema_of(KINDS)
    record = written(document, KINDS, random.Random(4))
    texts = assert_same(schema, [record[:size] for size in range(len(record) + 1)] * 10)
    assert texts[-1] is not None and texts[0] is None


@pytest.mark.parametrize("id_bytes", [4, 8])
def test_ids_of_many_messages_are_those_of_each(id_bytes: int) -> None:
    rng = random.Random(id_bytes)
    values = [None, b"", *(rng.choice([b"\0", b"\0\xff", b"a"]) + rng.randbytes(rng.randrange(14)) for _ in range(300))]
    headers = [
        [{"key": "apicurio.value.globalId", "value": rng.choice([None, b"", b"\1", b"\xff" * 8, b"\0" * 9])}]
        if rng.random() < 0.5
        else None
        for _ in values
    ]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {"value": pa.array(values, pa.binary()), "key": pa.nulls(len(values), pa.binary())}
    for some in (headers, [None] * len(values)):
        messages = pa.record_batch({**columns, "headers": pa.array(some, kind)})
        expected = {
            split_id(value, row[0]["value"] if row else None, id_bytes)[0]  # type: ignore[arg-type]
            for value, row in zip(values, some, strict=True)
            if value is not None
        }
        assert Schemas({}, id_bytes).ids(messages.slice(1)) == expected - {None}
