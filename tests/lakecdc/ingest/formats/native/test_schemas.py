"""What stands around payloads is compared to the byte, and only then are they what JSON says they are."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakecdc.ingest.formats.native.facts import Facts, merged
from lakecdc.ingest.formats.native.schemas import SchemaError, encoded, from_json, to_json, wrapping
from lakecdc.ingest.formats.values import Field

ROW = '{"op":"c","after":{"id":1,"v":"é"}}'
SCHEMA = '{"fields":[{"field":"after","fields":[{"field":"id","type":"int64"},{"field":"v","type":"bytes"}]}]}'
BEGIN = f'{{"schema":{SCHEMA},"payload":'
TOLD = (Field("id", "bigint"), Field("v", "binary", "base64"))


def payloads(values: list[str | bytes | None], kind: pa.DataType | None = None) -> list[str | None] | None:
    batch = pa.record_batch({"value": pa.array([None, *values], kind or pa.string())}).slice(1)
    found = wrapping(batch)
    return None if found is None else found.unwrapped(batch).column("payload").to_pylist()


def test_payloads_of_one_schema() -> None:
    whole = BEGIN + ROW + "}"
    others = ["x", "", None, ROW, BEGIN, BEGIN + "}", whole + " ", whole.replace("bytes", "bytez"), f" {whole}"]
    found = payloads([None, whole, whole + "\n", whole + "\r\n", *others, whole])
    assert found == [None, ROW, ROW, ROW, *[None] * len(others), ROW]
    assert payloads([whole.encode(), b"\xff"], pa.binary()) == [ROW, None]
    last = f'{{ "payload" : {ROW}, "schema": {SCHEMA} }}'
    assert payloads([last, last + "\n", whole]) == [ROW, ROW, None]
    messages = wrapping(pa.record_batch({"value": [whole]}))
    assert messages is not None and messages.fields == TOLD == from_json(to_json(TOLD))


@pytest.mark.parametrize(
    "first",
    [
        *(None, "", "x", "[]", ROW, BEGIN, BEGIN + ROW, BEGIN + ROW + "}x", BEGIN + ROW + ',"more":1}'),
        f'{{"schema":null,"payload":{ROW}}}',
        f'{{"schema":"s","payload":{ROW}}}',
        # no JSON for Spark
        BEGIN.replace('"type":"int64"', '"type":"int64","type":"int64"') + ROW + "}",
    ],
)
def test_what_has_no_schema_around_it(first: str | None) -> None:
    assert payloads([first, BEGIN + ROW + "}"] if first is not None else [None]) is None


def test_columns_of_a_table_as_a_schema_writes_them() -> None:
    table = (Field("id", "bigint"), Field("v", "binary", "base64"), Field("own", "string"))
    assert encoded(table, TOLD, ("id",), (), {}) == table
    days = encoded((Field("id", "date"), table[1]), (Field("id", "int"), TOLD[1]), ("id",), (), {"id": "epoch_days"})
    assert days[0] == Field("id", "date", "epoch_days")
    for told, ignored, reason in (
        ((*TOLD, Field("new", "int")), (), "a new column new"),
        (TOLD[1:], (), "without the key"),
        ((TOLD[0], Field("v", "string", "variable_decimal")), (), r"column v \(binary, variable_decimal\)"),
    ):
        with pytest.raises(SchemaError, match=reason):
            encoded(table, told, ("id",), ignored, {})
    assert encoded(table, (*TOLD, Field("new", "int")), ("id",), ("new",), {}) == table


def test_parts_of_a_batch_with_different_schemas_are_odd() -> None:
    one, other = Facts(schemas=(to_json(TOLD),)), Facts(schemas=(json.dumps([]),))
    assert merged([one, Facts(), one]).odd is None
    assert merged([one, other]).odd == merged([one, Facts(schemas=("",))]).odd == "messages of several schemas"
