"""Messages that carry their schemas are decoded if the schema is the table's."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.facts import Facts, merged
from lakecdc.ingest.engine.schemas import SchemaCheck, SchemaError, first_schema, from_json, to_json
from lakecdc.ingest.formats.values import Field
from tests.lakecdc.ingest.engine.decodings import decoding_of

ROW = '{"op":"c","after":{"id":1,"v":"é"}}'
SCHEMA = '{"fields":[{"field":"after","fields":[{"field":"id","type":"int64"},{"field":"v","type":"bytes"}]}]}'
BEGIN = f'{{"schema":{SCHEMA},"payload":'
FIELDS = (Field("id", "bigint"), Field("v", "binary", "base64"))


DECODING = decoding_of(FIELDS)


def payloads(values: list[str | bytes | None], kind: pa.DataType | None = None) -> list[tuple[bytes | None, bool]]:
    batch = pa.record_batch({"value": pa.array([None, *values], kind or pa.string())}).slice(1)
    parts, expected = SchemaCheck(DECODING.with_schema(FIELDS)).payloads(batch)
    assert expected is not None
    return [*zip(parts.values.to_pylist(), expected, strict=True)]


def test_payloads_of_the_expected_schema_are_read() -> None:
    whole, row = BEGIN + ROW + "}", ROW.encode()
    last = f'{{ "payload" : {ROW}, "schema": {SCHEMA} }}'
    spaced = whole.replace('{"field":"id"', '{ "field": "id"')
    for each in (whole, whole + "\n", f" {whole}\r\n", last, spaced):
        assert payloads([each, each.encode().decode()]) == [(row, True)] * 2
    assert payloads([whole.encode(), b"\xff"], pa.binary()) == [(row, True), (b"\xff", False)]
    messages = pa.record_batch({"value": ["x", whole]})
    assert first_schema(messages, DECODING) == FIELDS == from_json(to_json(FIELDS))


OTHERS = [
    *("", "x", "[]", ROW, BEGIN, BEGIN + ROW, BEGIN + ROW + "}x", BEGIN + ROW + ',"more":1}'),
    BEGIN.replace("bytes", "string") + ROW + "}",
    f'{{"schema":null,"payload":{ROW}}}',
    f'{{"schema":"s","payload":{ROW}}}',
    # a member that occurs twice, in the schema and in the message
    BEGIN.replace('"type":"int64"', '"type":"int64","type":"int64"') + ROW + "}",
    f'{{"schema":{SCHEMA},"schema":{SCHEMA},"payload":{ROW}}}',
]


@pytest.mark.parametrize("other", OTHERS)
def test_messages_of_another_schema_are_not_expected(other: str) -> None:
    assert [is_expected for _, is_expected in payloads([other, None])] == [False, False]
    assert first_schema(pa.record_batch({"value": [other]}), DECODING) != FIELDS


def test_many_schemas_are_not_all_remembered() -> None:
    check = SchemaCheck(DECODING.with_schema(FIELDS))
    for n in range(1000):
        check.payloads(pa.record_batch({"value": [BEGIN.replace("{", f'{{"version":{n},', 2) + ROW + "}"]}))
    assert check._is_expected.cache_info().currsize <= 64


def test_a_schema_defines_the_encodings_of_columns() -> None:
    table = (Field("id", "bigint"), Field("v", "binary", "base64"), Field("own", "string"))
    target = Target("test.t", key=("id",), encodings={"id": "epoch_days"}, columns={"id": "date"})
    assert decoding_of(table).with_schema(FIELDS).fields == table
    days = decoding_of((Field("id", "date"), table[1]), target=target).with_schema((Field("id", "int"), FIELDS[1]))
    assert days.fields[0] == Field("id", "date", "epoch_days")
    new = (*FIELDS, Field("new", "int"))
    for fields, reason in ((new, "a new column new"), (FIELDS[1:], "without the key")):
        with pytest.raises(SchemaError, match=reason):
            decoding_of(table).with_schema(fields)
    without = Target("test.t", key=("id",), exclude_columns=("new",))
    assert decoding_of(table, target=without).with_schema(new).fields == table


def test_parts_of_a_batch_with_different_schemas_are_odd() -> None:
    one, other = Facts(schemas=(to_json(FIELDS),)), Facts(schemas=(json.dumps([]),))
    assert merged([one, Facts(), one]).odd is None
    assert merged([one, other]).odd == merged([one, Facts(schemas=("",))]).odd == "messages of several schemas"
