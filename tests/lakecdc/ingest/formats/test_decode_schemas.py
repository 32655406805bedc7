"""Messages with their schemas: tasks make the same rows as Spark after a first pass over them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.fold import fold
from tests.lakecdc.ingest.formats.decoding import counted, decode_lines, is_folded, record
from tests.lakecdc.ingest.formats.test_decode import envelope

Document = dict[str, Any]
_TIME = "io.debezium.time."
UNCHANGED = "__debezium_unavailable_value"


def field(name: str, kind: str, semantic: str | None = None, **parameters: str) -> Document:
    document: Document = {"field": name, "type": kind, "optional": True}
    return {
        **document,
        **({"name": semantic} if semantic else {}),
        **({"parameters": parameters} if parameters else {}),
    }


def money(name: str, scale: int) -> Document:
    parameters = {"scale": str(scale), "connect.decimal.precision": "12"}
    return field(name, "bytes", "org.apache.kafka.connect.data.Decimal", **parameters)


COLUMNS = [
    field("id", "int64"),
    field("name", "string"),
    money("price", 2),
    field("anything", "struct", "io.debezium.data.VariableScaleDecimal"),
    field("raw", "bytes"),
    field("ratio", "double"),
    field("born", "int32", f"{_TIME}Date"),
    field("at", "int64", f"{_TIME}MicroTimestamp"),
    field("nano", "int64", f"{_TIME}NanoTimestamp"),
    field("zoned", "string", f"{_TIME}ZonedTimestamp"),
    field("clock", "int64", f"{_TIME}MicroTime"),
    field("doc", "string", "io.debezium.data.Json"),
]
TYPES = {
    "id": "bigint",
    "name": "string",
    "price": "decimal(12,2)",
    "anything": "string",
    "raw": "binary",
    "ratio": "double",
    "born": "date",
    "at": "timestamp_ntz",
    "nano": "timestamp_ntz",
    "zoned": "timestamp",
    "clock": "string",
    "doc": "string",
}
TARGET = Target("shop.t", key=("id",))
# keeps a type that the source has changed
PRICED = Target("shop.t", key=("id",), columns={"price": TYPES["price"]})


def schema(columns: list[Document], version: int = 2) -> Document:
    images = [{"type": "struct", "optional": True, "field": name, "fields": columns} for name in ("before", "after")]
    return {
        "type": "struct",
        "fields": [*images, field("op", "string")],
        "name": "d.shop.t.Envelope",
        "version": version,
    }


SCHEMA = schema(COLUMNS)
KEY_SCHEMA = {"type": "struct", "fields": [field("id", "int64")], "optional": False, "name": "d.shop.t.Key"}


def row(id: int, **values: Any) -> Document:
    price = b64encode((-12345).to_bytes(2, "big", signed=True)).decode()
    plain = {
        "name": "é {x}",
        "price": price,
        "anything": {"scale": 3, "value": "ew=="},
        "raw": "3q2+7w==",
        "ratio": 1.5,
    }
    times = {"born": -1, "at": 1_704_164_645_123_456, "nano": -1_500, "zoned": "2024-01-02T01:04:05Z", "clock": 5}
    return {"id": id, **plain, **times, "doc": '{"a": [1, 2.50]}', **values}


def wrapped(payload: Document, of: Document = SCHEMA) -> str:
    return json.dumps({"schema": of, "payload": payload}, ensure_ascii=False, separators=(",", ":"))


def key(id: int) -> str:
    return json.dumps({"schema": KEY_SCHEMA, "payload": {"id": id}})


def message(lsn: int, op: str, image: Document, of: Document = SCHEMA, **headers: Any) -> str:
    return record(wrapped(envelope(lsn, op, image), of), key(image["id"]), offset=lsn, **headers)


EVENTS = [
    message(10, "r", row(1)),
    message(20, "c", {**dict.fromkeys(row(2)), "id": 2}),
    message(30, "u", row(1, price="MA==", anything={"scale": 0, "value": "+w=="}, clock=86_400_000_000, name="2")),
    message(40, "c", row(3, name="deleted")),
    # with an empty `before`
    record(wrapped({**envelope(50, "d", {}), "before": None}), key(3), offset=50),
    record(None, key(3), offset=51),
    message(60, "c", row(8), oldkey={"schema": KEY_SCHEMA, "payload": {"id": 7}}),
]


def both(
    spark: SparkSession, lines: list[str], types: dict[str, str], target: Target = TARGET, *, folds: bool = True
) -> tuple[Decoded, Decoded]:
    return tuple(  # type: ignore[return-value]
        decode_lines(spark, "debezium-json", lines, target, Known(types, folds=folds), records=True, engine=engine)
        for engine in ("tasks", "spark")
    )


def rows(decoded: Decoded) -> list[Any]:
    assert decoded.rows is not None
    row = F.when(F.col("row").isNotNull(), F.struct(*[F.col("row")[c.name].alias(c.name) for c in decoded.columns]))
    columns = ("op", "key", row.alias("row"), "open", "old_key", "order", "source_time", "n_r", "n_c", "n_u", "n_d")
    changes = fold(decoded.rows.frame).select(*columns).collect()
    return sorted((r["key"]["id"], r.asDict(recursive=True)) for r in changes)


def assert_same(by_tasks: Decoded, by_spark: Decoded) -> None:
    assert rows(by_tasks) == rows(by_spark)
    assert by_tasks.columns == by_spark.columns and by_tasks.source_columns == by_spark.source_columns
    assert counted(by_tasks) == counted(by_spark)


def test_new_and_known_tables_are_decoded_in_one_pass(spark: SparkSession) -> None:
    by_tasks, by_spark = both(spark, EVENTS, {})
    assert by_tasks.passes == "one pass" and is_folded(by_tasks)
    assert_same(by_tasks, by_spark)
    assert {c.name: c.type for c in by_tasks.columns} == TYPES
    # the table does not record how values are encoded
    again = decode_lines(spark, "debezium-json", EVENTS, TARGET, Known(TYPES), records=True)
    assert again.passes == "one pass"
    assert_same(again, by_spark)


@pytest.mark.soak
def test_types_and_encodings_of_the_target_take_precedence(spark: SparkSession) -> None:
    types = {"price": "string", "at": "timestamp", "anything": "decimal(20,4)"}
    target = Target("shop.t", key=("id",), columns=types, encodings={"born": "epoch_days"}, exclude_columns=("doc",))
    by_tasks, by_spark = both(spark, EVENTS, {}, target)
    assert by_tasks.passes == "one pass" and {c.name: c.type for c in by_tasks.columns}.items() >= types.items()
    assert_same(by_tasks, by_spark)


@pytest.mark.soak
def test_only_new_columns_of_another_schema_take_two_passes(spark: SparkSession) -> None:
    repriced = [c if c["field"] != "price" else money("price", 3) for c in COLUMNS]
    cases = {
        # the table has one more, which the source has dropped
        "one pass": COLUMNS[:-1],
        "two passes: a new column extra": [*COLUMNS, field("extra", "string")],
    }
    for engine, columns in [*cases.items(), ("one pass", repriced)]:
        image, of = row(1, extra="x", price="E4g="), schema(columns)
        image = {c["field"]: image[c["field"]] for c in columns}
        by_tasks, by_spark = both(spark, [message(10, "c", image, of)], TYPES, PRICED)
        assert by_tasks.passes == engine
        assert_same(by_tasks, by_spark)


@pytest.mark.soak
def test_schemas_of_equal_columns_are_decoded_in_one_pass(spark: SparkSession) -> None:
    by_tasks, by_spark = both(spark, [*EVENTS, message(70, "u", row(1, name="newer"), schema(COLUMNS, 3))], TYPES)
    assert by_tasks.passes == "one pass"
    assert_same(by_tasks, by_spark)


def test_messages_of_several_schemas_are_decoded(spark: SparkSession) -> None:
    price = [c if c["field"] != "price" else money("price", 1) for c in COLUMNS]
    by_tasks, by_spark = both(spark, [*EVENTS, message(70, "u", row(1, name="newer"), schema(price))], TYPES, PRICED)
    assert by_tasks.passes == "two passes: a message of another schema"
    assert_same(by_tasks, by_spark)


@pytest.mark.soak
def test_misfits_with_a_schema_are_rejected(spark: SparkSession) -> None:
    lines = [*EVENTS, message(70, "u", row(1, born=10**9)), message(80, "u", row(2, name=[1]))]
    by_tasks, by_spark = both(spark, lines, TYPES)
    assert by_tasks.passes == "one pass"
    assert by_tasks.rejections == by_spark.rejections == 1
    assert_same(by_tasks, by_spark)


@pytest.mark.soak
def test_unchanged_values_stay_open(spark: SparkSession) -> None:
    encoded = b64encode(UNCHANGED.encode()).decode()
    image = row(1, name=UNCHANGED, raw=encoded, price=encoded, anything={"scale": 0, "value": encoded})
    lines = [message(10, "c", row(1)), message(20, "u", image)]
    by_tasks, by_spark = both(spark, lines, {}, folds=False)
    assert by_tasks.passes == "one pass"
    assert_same(by_tasks, by_spark)
    assert [one["open"] for _, one in rows(by_tasks)] == [["name", "price", "anything", "raw"]]
    filled, whole = (both(spark, [lines[0], last], {})[0] for last in (lines[1], message(20, "u", row(1))))
    assert is_folded(filled) and rows(filled) == rows(whole)


@pytest.mark.soak
def test_the_payload_may_precede_the_schema(spark: SparkSession) -> None:
    """Spark sorts the members of objects in files of dumped records."""
    lines = [record(json.loads(wrapped(envelope(n, "c", row(n)))), key(n), offset=n) for n in (11, 12)]
    by_tasks, by_spark = both(spark, lines, {})
    assert by_tasks.passes == "one pass"
    assert_same(by_tasks, by_spark)
