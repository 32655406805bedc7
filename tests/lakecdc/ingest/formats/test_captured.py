"""Events captured from real Debezium connectors: types, placeholders, key changes, TRUNCATE, other messages."""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.fold import fold
from lakecdc.ingest.formats.values import placeholder_shapes
from tests.lakecdc.ingest.formats.decoding import decode_lines, record, rejections, state

CAPTURED = Path(__file__).parent / "captured"
CUSTOMERS = Target(
    "shop.customers",
    key=("id",),
    columns={"balance": "decimal(12,2)", "n": "decimal(10,4)", "born": "date", "ts": "timestamp_ntz", "b": "binary"},
    encodings={"balance": "decimal_bytes", "n": "variable_decimal", "born": "epoch_days", "ts": "epoch_micros"},
)


def lines(name: str) -> list[str]:
    return (CAPTURED / f"{name}.jsonl").read_text().splitlines()


def last(decoded: Decoded) -> dict[Any, Row]:
    """Return the last event of every key."""
    assert decoded.rows is not None
    return {row["key"]["id"]: row for row in fold(decoded.rows.every_event().frame).collect()}


def test_postgres(spark: SparkSession) -> None:
    decoded = decode_lines(spark, "debezium-json", lines("postgres"), CUSTOMERS, records=True)
    rows = last(decoded)
    assert {key: row["op"] for key, row in rows.items()} == {1: "u", 2: "d", 3: "d", 4: "c", 30: "c"}
    ann = rows[1]["row"]
    assert (ann["name"], ann["balance"], ann["n"], ann["i8"]) == ("Ann2", Decimal("0.10"), Decimal("1.2300"), 2**53 + 1)
    assert (ann["born"], ann["b"]) == (datetime.date(1990, 2, 28), b"\xde\xad\xbe\xef")
    assert ann["ts"] == datetime.datetime(2024, 1, 2, 3, 4, 5, 123456)
    assert (ann["j"], ann["tags"]) == ('{"a": [1, 2.50]}', '["a",null,"b c"]')
    assert rows[1]["open"] == ["doc"]
    assert rows[30]["open"] == ["doc"] and rows[30]["old_key"]["id"] == 3
    assert decoded.truncate_order and decoded.truncate_order > max(row["order"] for row in rows.values())
    assert rejections(decoded) == []


def test_topics_of_other_tables_and_transactions_are_skipped(spark: SparkSession) -> None:
    target = Target("shop.orders_full", key=("cust", "line"))
    decoded = decode_lines(spark, "debezium-json", lines("postgres_transactions"), target, records=True)
    assert state(decoded, ("cust", "line", "qty", "note")) == [(1, 1, 5, "snap"), (1, 2, 8, "tx")]
    assert rejections(decoded) == [] and decoded.events == 6


def test_mariadb_events_are_decoded(spark: SparkSession) -> None:
    target = Target(
        "shop.customers",
        key=("id",),
        columns={"balance": "decimal(12,2)", "dt": "timestamp_ntz", "d": "date", "t": "string"},
        encodings={"balance": "decimal_bytes", "dt": "epoch_micros", "d": "epoch_days", "t": "time_micros"},
    )
    rows = last(decode_lines(spark, "debezium-json", lines("mariadb"), target, records=True))
    assert {key: row["op"] for key, row in rows.items()} == {1: "u", 2: "d", 3: "d", 30: "u", 40: "c"}
    ann = rows[1]["row"]
    assert (ann["balance"], ann["d"], ann["t"]) == (Decimal("12345.67"), datetime.date(2024, 2, 29), "-01:02:03.500000")
    assert (rows[30]["row"]["name"], rows[40]["row"]["extra"]) == ("odku", 9)


def test_flattened_events_take_their_table_from_the_topic(spark: SparkSession) -> None:
    types = {"balance": "decimal(12,2)", "born": "date", "ts": "timestamp_ntz", "tstz": "timestamp"}
    target = Target("shop.customers", key=("id",), columns=types)
    decoded = decode_lines(spark, "debezium-flat-json", lines("postgres_flat"), target, records=True)
    rows = last(decoded)
    assert {key: row["op"] for key, row in rows.items()} == {1: "u", 2: "d", 3: "d", 4: "c", 30: "c"}
    ann = rows[1]["row"]
    assert (ann["balance"], ann["born"]) == (Decimal("0.10"), datetime.date(1990, 2, 28))
    assert ann["ts"] == datetime.datetime(2024, 1, 2, 3, 4, 5, 123456)
    assert rows[1]["open"] == ["doc"] and not [c.name for c in decoded.columns if c.name.startswith("__")]
    assert rejections(decoded) == []


@pytest.mark.soak
def test_every_form_of_the_placeholder_leaves_its_column_open(spark: SparkSession) -> None:
    shapes = placeholder_shapes("__debezium_unavailable_value")
    values = {f"v{n}": json.loads(s) if s.startswith(("[", "{")) else s for n, s in enumerate(shapes)}
    source = {"connector": "postgresql", "schema": "s", "table": "products", "lsn": 9, "snapshot": "false"}
    line = json.dumps({"op": "u", "before": None, "after": {"id": 1, **values, "w": "kept"}, "source": source})
    rows = decode_lines(spark, "debezium-json", [line]).rows
    assert rows is not None
    changes = rows.frame
    assert [sorted(r["open"]) for r in changes.collect()] == [sorted(values)]
    assert len(values) >= 5


def test_the_uuid_placeholder_is_name_based() -> None:
    named = uuid.UUID(bytes=md5(b"__debezium_unavailable_value").digest(), version=3)
    assert f'["{named}"]' in placeholder_shapes("__debezium_unavailable_value")


def envelope(lsn: int, op: str, row: dict[str, Any], table: str = "products") -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "shop", "table": table, "lsn": lsn, "snapshot": "false"}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.soak), -1], ids=["in order", "backwards"])
def test_a_lone_tombstone_deletes_only_earlier_rows(spark: SparkSession, step: int) -> None:
    events = [
        record(envelope(10, "c", {"id": 1, "v": 1}), {"id": 1}, offset=0),
        record(envelope(20, "c", {"id": 2, "v": 2}), {"id": 2}, offset=1),
        record(None, {"id": 1}, offset=2),
        record(envelope(30, "c", {"id": 3, "v": 3}), {"id": 3}, offset=3),
        record(None, {"id": 4}, offset=4),
        record(envelope(40, "c", {"id": 4, "v": 4}), {"id": 4}, offset=5),
    ]
    decoded = decode_lines(spark, "debezium-json", events[::step], records=True)
    assert state(decoded, ("id", "v")) == [(2, 2), (3, 3), (4, 4)]


@pytest.mark.soak
def test_a_tombstone_after_its_delete_is_ignored(spark: SparkSession) -> None:
    events = [
        record(envelope(10, "c", {"id": 1, "v": 1}), {"id": 1}, offset=0),
        record(envelope(20, "d", {"id": 1}), {"id": 1}, offset=1),
        record(None, {"id": 1}, offset=2),
    ]
    decoded = decode_lines(spark, "debezium-json", events, known=Known({}), records=True, engine="spark")
    assert decoded.rows is not None and decoded.rows.frame.count() == 2


@pytest.mark.soak
def test_an_event_is_late_only_in_its_own_partition(spark: SparkSession) -> None:
    first = decode_lines(spark, "debezium-json", [record(envelope(10, "c", {"id": 1}), partition=0)], records=True)
    assert first.high_orders
    (mark,) = first.high_orders.values()
    events = [
        record(envelope(5, "c", {"id": 5}), partition=0, offset=1),
        record(envelope(11, "c", {"id": 11}), partition=0, offset=2),
        record(envelope(6, "c", {"id": 6}), partition=1),
    ]
    known = Known({}, marks={"db.shop.products/0": mark, "db.shop.products/1": mark.replace("a", "1", 1)})
    decoded = decode_lines(spark, "debezium-json", events, known=known, records=True)
    assert decoded.rows is not None
    late = {r["key"]["id"]: r["late"] for r in decoded.rows.frame.collect()}
    assert late[5] and not late[11]


@pytest.mark.soak
def test_several_tables_need_a_name(spark: SparkSession) -> None:
    events = [json.dumps(envelope(1, "c", {"id": 1}, "a")), json.dumps(envelope(2, "c", {"id": 1}, "b"))]
    decoded = decode_lines(spark, "debezium-json", events)
    assert (decoded.events, decoded.others) == (0, ("shop.a", "shop.b"))


@pytest.mark.soak
def test_old_values_of_a_format_reveal_a_key_change(spark: SparkSession) -> None:
    data, old = [{"id": "2", "v": "x"}], [{"id": "1"}]
    place = {"database": "d", "table": "products", "es": 1, "id": 1, "isDdl": False}
    line = {"data": data, "old": old, "type": "UPDATE", **place}
    decoded = decode_lines(spark, "canal-json", [json.dumps({**line, "mysqlType": {"id": "int", "v": "text"}})])
    assert decoded.rows is not None
    changes = sorted(
        (r["op"], r["key"]["id"], r["old_key"] and r["old_key"]["id"]) for r in decoded.rows.frame.collect()
    )
    assert changes == [("d", 1, None), ("u", 2, 1)]
