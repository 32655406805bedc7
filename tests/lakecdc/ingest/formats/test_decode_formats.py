"""Tasks make the same rows as Spark after a first pass over the messages, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.formats.envelope import Reading
from tests.lakecdc.ingest.formats import stories
from tests.lakecdc.ingest.formats.decoding import (
    PRODUCTS,
    counted,
    decode_lines,
    is_folded,
    last_changes,
    record,
    rejections,
    state,
)
from tests.lakecdc.ingest.formats.stories import COLUMNS, ENCODINGS, STORY, final
from tests.on_demand import on_demand

READING = Reading(1, order_by="version")


def rows(decoded: Decoded) -> list[Any]:
    return sorted((str(change["key"]), change) for change in last_changes(decoded))


def both(spark: SparkSession, name: str, lines: list[str], **rest: Any) -> tuple[Decoded, Decoded]:
    target, reading = rest.pop("target", PRODUCTS), rest.pop("reading", Reading(1))
    types, records = rest.pop("types", {}), rest.pop("records", False)
    by_tasks, by_spark = (
        decode_lines(spark, name, lines, target, Known(types), reading, records=records, engine=engine)
        for engine in ("tasks", "spark")
    )
    assert by_tasks.passes == "one pass", by_tasks.passes
    assert by_spark.passes == "two passes: required by the test"
    assert rows(by_tasks) == rows(by_spark)
    assert counted(by_tasks) == counted(by_spark)
    return by_tasks, by_spark


def plain(story: list[stories.Statement]) -> list[str]:
    """Return the state of each row with its version; deletes have none."""
    images = [after for _, _, _, after, _ in stories.events(story) if after]
    return [json.dumps({**row, "version": f"2024-01-01T00:00:{n:02d}Z"}) for n, row in enumerate(images)]


@pytest.mark.parametrize("name", on_demand([n for n in ENCODINGS if not n.endswith("schema")], in_ci=("canal",)))
def test_a_new_table_is_decoded_alike_in_every_format(spark: SparkSession, name: str) -> None:
    format_name, encode, story = ENCODINGS[name]
    by_tasks, by_spark = both(spark, format_name, encode(story))
    assert by_tasks.columns == by_spark.columns
    # Canal declares the weights as floats
    assert state(by_tasks, COLUMNS) == [
        tuple(pytest.approx(v) if isinstance(v, float) else v for v in r) for r in final(story)
    ]
    assert is_folded(by_tasks)


def test_plain_rows_are_decoded_alike(spark: SparkSession) -> None:
    lines = plain(STORY)
    by_tasks, by_spark = both(spark, "json", list(reversed(lines)), reading=READING)
    assert by_tasks.columns == by_spark.columns
    assert state(by_tasks, COLUMNS) == final([s for s in STORY if s[0] != "d"])


@pytest.mark.soak
def test_rows_of_a_topic_are_decoded_alike(spark: SparkSession) -> None:
    """Keys may be anything, the time is the record's, and the table is the topic."""
    lines = [record({"id": n % 3, "v": f"v{n}"}, f"row {n % 3}", offset=n) for n in range(6)]
    target = Target("shop.t", key=("id",), source_table="shop.products")
    by_tasks, _ = both(spark, "json", lines, target=target, records=True)
    assert by_tasks.newest is not None and by_tasks.newest.timestamp() == 1_700_000_000.005
    decoded = decode_lines(spark, "json", [*lines, record(None, {"id": 2}, offset=6)], target, records=True)
    assert decoded.passes == "two passes: a tombstone without its delete"


@pytest.mark.soak
def test_flattened_events_of_a_topic_are_decoded_alike(spark: SparkSession) -> None:
    def event(lsn: int, op: str, row: dict[str, Any], **headers: Any) -> str:
        facts = {"__op": op, "__lsn": lsn, "__table": "products", "__deleted": str(op == "d").lower()}
        return record({**row, **facts}, {"id": row["id"]}, offset=lsn, **headers)

    unchanged = "__debezium_unavailable_value"
    lines = [event(1, "r", {"id": 1, "v": "a"}), event(2, "c", {"id": 2, "v": "b"}), event(3, "u", {"id": 1, "v": "c"})]
    lines += [event(4, "d", {"id": 2, "v": None}), record(None, {"id": 2}, offset=5)]
    of_sql_server: dict[str, Any] = {"__commit_lsn": "00000027:00000758:0005", "__change_lsn": "00000027:00000758:0003"}
    of_sql_server["__event_serial_no"] = 1
    lines.append(record({"id": 4, "v": "x", "__table": "products", **of_sql_server}, {"id": 4}, offset=8))
    assert is_folded(both(spark, "debezium-flat-json", lines, records=True)[0])
    lines += [event(6, "u", {"id": 1, "v": unchanged}), event(7, "c", {"id": 3, "v": unchanged}, oldkey={"id": 1})]
    assert not is_folded(both(spark, "debezium-flat-json", lines, records=True)[0])


MYSQL = {
    "id": "bigint unsigned",
    "i": "int(11)",
    "u": "int unsigned",
    "d": "decimal(12,2)",
    "f": "float",
    "g": "double",
    "b": "tinyint(1)",
    "s": "varchar(20)",
    "j": "json",
    "day": "date",
    "local": "datetime(6)",
    "at": "timestamp",
}


@pytest.mark.soak
def test_types_sent_by_canal_are_used(spark: SparkSession) -> None:
    row = {"id": "18446744073709", "i": "-5", "u": "4294967295", "d": "-12.50", "f": "0.1", "g": "1.25E-7", "b": "1"}
    row |= {"s": "1.50", "j": '{"a": 1.0}', "day": "2024-02-29", "local": "2024-01-02 03:04:05.123456"}
    row |= {"at": "2024-01-02 03:04:05"}
    nulls = {name: None if name != "id" else "7" for name in row}
    place = {"database": "shop", "table": "products", "es": 5000, "id": 1, "isDdl": False, "mysqlType": MYSQL}
    lines = [json.dumps({**place, "type": "INSERT", "data": [row, nulls], "old": None})]
    lines.append(json.dumps({**place, "type": "INIT", "data": [{**row, "id": "8"}], "old": None}))
    by_tasks, by_spark = both(spark, "canal-json", lines)
    assert by_tasks.columns == by_spark.columns and len(by_tasks.columns) == len(MYSQL)


@pytest.mark.parametrize("in_key", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_shards_are_decoded_alike(spark: SparkSession, in_key: bool) -> None:
    message = {"database": "shop", "type": "insert", "ts": 5, "commit": True}
    lines = [
        json.dumps({**message, "table": f"products_{n % 3}", "xid": n, "data": {"id": n % 4, "v": f"v{n}"}})
        for n in range(20)
    ]
    lines.append(lines[2].replace('"insert"', '"bootstrap-insert"'))
    key = ("id", "shard") if in_key else ("id",)
    target = Target("shop.products", key=key, source_tables=("products_[02]",), source_column="shard")
    by_tasks, by_spark = both(spark, "maxwell-json", lines, target=target)
    assert by_tasks.columns == by_spark.columns and by_tasks.events == 14
    assert {r["row"]["shard"] for _, r in rows(by_tasks)} == {"shop.products_0", "shop.products_2"}


@pytest.mark.soak
def test_tombstones_of_shards_delete_only_their_shard(spark: SparkSession) -> None:
    """They do not name their table, which is part of the key."""

    def event(lsn: int, op: str, shard: int) -> str:
        source = {"connector": "postgresql", "schema": "shop", "table": f"t_{shard}", "lsn": lsn, "ts_ms": 5}
        image = {"id": 1, "v": f"v{lsn}"}
        body = {"op": op, "source": source, "before": image if op == "d" else None}
        body["after"] = None if op == "d" else image
        return record(body, {"id": 1}, topic=f"db.shop.t_{shard}", offset=lsn)

    lines = [event(1, "c", 1), event(2, "c", 2), event(3, "d", 1)]
    lines.append(record(None, {"id": 1}, topic="db.shop.t_1", offset=4))
    target = Target("shop.t", key=("id", "shard"), source_tables=("t_.*",), source_column="shard")
    by_tasks, _ = both(spark, "debezium-json", lines, target=target, records=True)
    assert [(r["key"]["shard"], r["op"]) for _, r in rows(by_tasks)] == [("shop.t_1", "d"), ("shop.t_2", "c")]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["debezium-flat", "canal", "maxwell", "ogg", "dms"])
def test_misfits_are_rejected_in_one_pass(spark: SparkSession, name: str) -> None:
    format_name, encode, story = ENCODINGS[name]
    lines = [line.replace(": 5.17", ': "heavy"').replace('"5.17"', '"heavy"') for line in encode(story)]
    types = {"id": "bigint", "name": "string", "description": "string", "weight": "double"}
    by_tasks, by_spark = (
        decode_lines(spark, format_name, lines, PRODUCTS, Known(types), engine=engine) for engine in ("tasks", "spark")
    )
    assert by_tasks.passes == "one pass"
    assert rows(by_tasks) == rows(by_spark)
    assert rejections(by_tasks) == rejections(by_spark) != []
