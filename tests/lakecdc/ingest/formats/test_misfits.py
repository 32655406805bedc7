"""A value fits its column exactly, or its message is rejected: never cut, rounded or misread."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.model.order import WIDTH
from tests.lakecdc.ingest.formats.decoding import decode_lines, rejections, state
from tests.on_demand import on_demand

#: by type: texts that fit with their values, and texts that do not fit
CASES: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "bigint": ([(2**63 - 1, 2**63 - 1), ("7", 7)], [2**63, 1.5, "x"]),
    "decimal(10,2)": ([(12.5, Decimal("12.50")), ("0.10", Decimal("0.10"))], [1.005, "1e9"]),
    "decimal(38,0)": (
        [(10**37, Decimal(10**37)), (1e22, Decimal(10**22)), ("1.000", Decimal(1)), (-1, Decimal(-1))],
        [1.5, "1.5", 0.1, 1e-7],
    ),
    "decimal(38,18)": (
        [
            ("0.123456789012345678", Decimal("0.123456789012345678")),
            (10**19, Decimal(10**19)),
        ],
        ["0.1234567890123456789", 10**21],
    ),
    "double": (
        [(2**53, float(2**53)), (123456789012345680000, 1.2345678901234568e20), (0.1, 0.1), ("NaN", None)],
        [2**53 + 1, 2**64 - 1, "x", "1e400", "1d", "0x1p3"],
    ),
    "boolean": ([(True, True), (0, False), ("true", True)], [2, 1.5, "x"]),
    "date": (
        [("2024-02-29", date(2024, 2, 29)), ("2024-02-29Z", date(2024, 2, 29)), ("0000-00-00", None)],
        [19782, 7305, "19782", "-0044-03-15", "2024-02-30"],
    ),
    "timestamp": (
        [("2024-01-02T03:04:05+02:00", datetime(2024, 1, 2, 1, 4, 5)), ("0000-00-00 00:00:00", None)],
        [1000, "2024", "10:11:12", "10000-01-01T00:00:00Z", "2024-01-02T24:00:00Z"],
    ),
}


OLDER: list[tuple[Any, Any]] = [(-1, 0), (-7, -5), ("1969-07-20T20:17:00Z", "2024-01-01T00:00:00Z")]


def insert(place: int, row: dict[str, Any]) -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "shop", "table": "t", "lsn": place, "ts_ms": 1_700_000_000_000}
    return {"op": "c", "before": None, "after": row, "source": source}


def test_fitting_values_are_exact_and_misfits_are_rejected(spark: SparkSession) -> None:
    types = {f"c{i}": sql_type for i, sql_type in enumerate(CASES)}
    good = [(f"c{i}", *pair) for i, (fits, _) in enumerate(CASES.values()) for pair in fits]
    bad = [(f"c{i}", value) for i, (_, misfits) in enumerate(CASES.values()) for value in misfits]
    columns = [(name, value) for name, value, _ in good] + bad
    lines = [json.dumps(insert(i + 1, {"id": i, name: value})) for i, (name, value) in enumerate(columns)]
    target = Target("shop.t", key=("id",), columns={"id": "bigint", **types})
    decoded = decode_lines(spark, "debezium-json", lines, target, Known(target.columns))
    assert decoded.rows is not None
    rows = {r["key"]["id"]: r["row"] for r in decoded.rows.frame.collect()}
    assert sorted(rows) == list(range(len(good)))
    values = [(name, value, rows[i][name]) for i, (name, value, _) in enumerate(good) if value != "NaN"]
    assert values == [case for case in good if case[1] != "NaN"]
    reasons = [f"values do not fit their columns: {name} ({types[name]})" for name, _ in bad]
    assert rejections(decoded) == sorted(("type", reason) for reason in reasons)


def test_precise_decimals_may_also_be_written_as_numbers(spark: SparkSession) -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "optional": True, "field": "price"}
    decimal["parameters"] = {"scale": "2", "connect.decimal.precision": "10"}
    row = {"field": "after", "type": "struct", "fields": [{"type": "int64", "field": "id"}, decimal]}
    # 1234 and 12345678 would pass as base64
    values = ["BNI=", 12.34, 1234, 5, 12345678, 1.005, None]
    lines = [
        json.dumps({"schema": {"type": "struct", "fields": [row]}, "payload": insert(i + 1, {"id": i, "price": value})})
        for i, value in enumerate(values)
    ]
    decoded = decode_lines(spark, "debezium-json", lines, Target("shop.t", key=("id",)))
    numbers = ["12.34", "12.34", "1234.00", "5.00", "12345678.00"]
    assert state(decoded, ("id", "price")) == [*[(i, Decimal(n)) for i, n in enumerate(numbers)], (6, None)]
    assert decoded.rejections == 1


@pytest.mark.soak
def test_names_beyond_json_paths_are_read(spark: SparkSession) -> None:
    names = ('5" disk', "a.b", "x'y", " b", "c?", "back\\slash", "d[0]")
    lines = [json.dumps(insert(1, {"id": 1, **{name: name for name in names}}))]
    decoded = decode_lines(spark, "debezium-json", lines, Target("shop.t", key=("id",)), Known({}), engine="spark")
    assert state(decoded, names) == [names]


@pytest.mark.soak
def test_invalid_row_images_do_not_hide_columns_of_others(spark: SparkSession) -> None:
    lines = [json.dumps(insert(1, {"id": 1, "v": "x"})), *(json.dumps(insert(2, image)) for image in (5, [1], "x"))]  # type: ignore[arg-type]
    decoded = decode_lines(spark, "debezium-json", lines, Target("shop.t", key=("id",)))
    assert state(decoded, ("id", "v")) == [(1, "x")]
    assert [rule for rule, _ in rejections(decoded)] == ["no-key"] * 3
    plain = decode_lines(spark, "json", ['{"id": 1, "v": "x"}', "5", "[1]"], Target("shop.t", key=("id",)))
    assert state(plain, ("id", "v")) == [(1, "x")]
    assert [rule for rule, _ in rejections(plain)] == ["unknown-message"] * 2


@pytest.mark.parametrize(("older", "newer"), on_demand(OLDER, in_ci=OLDER[:1]))
def test_negative_versions_and_times_before_1970_are_older(spark: SparkSession, older: Any, newer: Any) -> None:
    lines = [json.dumps({"id": 1, "at": at, "v": v}) for at, v in ((newer, "newer"), (older, "older"))]
    reading = Reading(1, order_by="at")
    decoded = decode_lines(spark, "json", lines, Target("shop.t", key=("id",)), reading=reading)
    assert state(decoded, ("v",)) == [("newer",)]


@pytest.mark.soak
def test_times_of_other_messages_never_exceed_log_positions(spark: SparkSession) -> None:
    changes = [(1, 5, 7), (1, -5, 6), (2, 1, 5), (2, 2, -5), (2, 3, 2**60)]
    events = [insert(place, {"id": key, "v": str(place)}) for key, place, _ in changes]
    for event, (*_, moment) in zip(events, changes, strict=True):
        event["source"]["ts_ms"] = moment
    flat = [{**e["after"], "__op": "c", "__lsn": e["source"]["lsn"], "__ts_ms": e["source"]["ts_ms"]} for e in events]
    for name, messages in (("debezium-json", events), ("debezium-flat-json", flat)):
        lines = [json.dumps(message) for message in messages]
        decoded = decode_lines(
            spark, name, lines, Target("shop.t", key=("id",)), Known({"id": "bigint", "v": "string"})
        )
        assert state(decoded, ("id", "v")) == [(1, "5"), (2, "3")]
        assert decoded.rows is not None
        orders = [row["order"] for row in decoded.rows.frame.collect()]
        assert {len(order) for order in orders} == {WIDTH} and max(orders)[4:20] == f"{5:016x}"


@pytest.mark.parametrize("name", on_demand(("debezium-json", "maxwell-json", "canal-json"), in_ci=("debezium-json",)))
def test_unbounded_numbers_do_not_stop_a_batch(spark: SparkSession, name: str) -> None:
    rows = [{"id": key, "v": str(key)} for key in (1, 2)]
    messages: list[dict[str, Any]]
    if name == "debezium-json":
        messages = [insert(1, row) for row in rows]
        source = {"connector": "mysql", "file": f"log.{2**40}", "pos": 2**62, "row": 0, "ts_ms": 2**62}
        messages[1]["source"] |= source
    else:
        place = {"database": "shop", "table": "t", "isDdl": False, "mysqlType": {"id": "bigint", "v": "text"}}
        numbers: list[dict[str, Any]] = [{"ts": 5, "es": 5, "id": 1, "xid": 1}]
        numbers.append({"ts": 2**61, "es": 2**61, "id": 2**61, "xid": 2**61, "position": f"log.{2**40}:{2**62}"})
        data = [
            {"data": [row], "type": "INSERT"} if name == "canal-json" else {"data": row, "type": "insert"}
            for row in rows
        ]
        messages = [{**place, **more, **one} for more, one in zip(numbers, data, strict=True)]
    known = Known({"id": "bigint", "v": "string"})
    decoded = decode_lines(spark, name, [*map(json.dumps, messages)], Target("shop.t", key=("id",)), known)
    assert state(decoded, ("id", "v")) == [(1, "1"), (2, "2")]
    assert decoded.newest is not None and decoded.newest.year < 2030


def dms(operation: str, data: dict[str, Any], second: int, **more: Any) -> str:
    metadata = {"record-type": "data", "operation": operation, "schema-name": "shop", "table-name": "t"}
    moment = datetime.fromtimestamp(1_700_000_000 + second, UTC).isoformat()
    return json.dumps({"data": data, **more, "metadata": {**metadata, "timestamp": moment}})


def test_a_dms_key_change_is_recognized_in_either_before_image(spark: SparkSession) -> None:
    lines = [dms("load", {"id": i, "BI_CODE": f"b{i}"}, 0) for i in (1, 2, 3)]
    lines.append(dms("update", {"id": 11, "BI_CODE": "new"}, 1, **{"before-image": {"id": 1}}))
    lines.append(dms("update", {"id": 12, "BI_id": 2, "BI_CODE": "new"}, 1))
    decoded = decode_lines(spark, "dms-json", lines, Target("shop.t", key=("id",)))
    # a column's name may begin with the prefix of the old values
    assert state(decoded, ("id", "BI_CODE")) == [(3, "b3"), (11, "new"), (12, "new")]
