"""One pass of tasks makes the same rows as Spark after a first pass over all messages, or names why it needs one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.fold import fold
from lakecdc.model.order import WIDTH
from tests.lakecdc.ingest.formats.decoding import counted, decode_lines, is_folded, last_changes, record
from tests.on_demand import on_demand

TYPES = {
    "id": "bigint",
    "i": "int",
    "d": "decimal(12,2)",
    "f": "double",
    "b": "boolean",
    "s": "string",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "epoch": "timestamp_ntz",
}
TARGET = Target("shop.t", key=("id",), columns=TYPES, encodings={"epoch": "epoch_micros"})


def envelope(lsn: int, op: str, row: dict[str, Any], table: str = "t") -> dict[str, Any]:
    source = {"connector": "postgresql", "db": "d", "schema": "shop", "table": table, "lsn": lsn, "snapshot": "false"}
    source |= {"ts_ms": 1_700_000_000_000 + lsn, "sequence": json.dumps([str(lsn - 2), str(lsn)])}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


def row(id: int, **values: Any) -> dict[str, Any]:
    plain = {
        "i": -5,
        "d": 12.5,
        "f": 1.25e-7,
        "b": True,
        "s": "é {x}",
        "day": "2024-02-29",
        "at": "2024-01-02T03:04:05.123456+02:00",
        "local": "2024-01-02 03:04:05",
        "epoch": 1_704_164_645_123_456,
    }
    return {"id": id, **plain, **values}


def both(spark: SparkSession, lines: list[str], target: Target = TARGET, **rest: Any) -> tuple[Decoded, Decoded]:
    return tuple(  # type: ignore[return-value]
        decode_lines(spark, "debezium-json", lines, target, Known(TYPES, **rest), records=True, engine=engine)
        for engine in ("tasks", "spark")
    )


def rows(decoded: Decoded) -> list[Any]:
    return sorted((change["key"]["id"], change) for change in last_changes(decoded))


def assert_same(by_tasks: Decoded, by_spark: Decoded) -> None:
    assert by_tasks.passes == "one pass"
    assert rows(by_tasks) == rows(by_spark)
    assert counted(by_tasks) == counted(by_spark)
    assert [c.name for c in by_tasks.columns] == list(TYPES)


def test_every_type_is_decoded_alike_by_both_engines(spark: SparkSession) -> None:
    lines = [
        record(envelope(10, "r", row(1)), {"id": 1}, offset=0),
        record(
            envelope(20, "c", row(2, i=None, d=None, f=None, b=None, s=None, day=None, at=None)), {"id": 2}, offset=1
        ),
        record(envelope(30, "u", row(1, d="0.10", f=3, b=False, s="", at="2024-01-02T03:04:05Z", epoch=-1)), offset=2),
        record(envelope(40, "d", {"id": 2}), {"id": 2}, offset=3),
        record(None, {"id": 2}, offset=4),
        record(envelope(50, "c", row(2, s='{"a": [1, 2.50]}', i=2**31 - 1)), {"id": 2}, offset=5),
        record({"ts_ms": 5}, offset=6),
        record({"status": "BEGIN", "id": "1:2"}, offset=7),
        record({"op": "m", "source": {"connector": "postgresql"}}, offset=8),
        record({"source": {"connector": "mysql"}, "ddl": "CREATE TABLE x (a int)"}, offset=9),
    ]
    by_tasks, by_spark = both(spark, lines)
    assert_same(by_tasks, by_spark)
    assert is_folded(by_tasks) and not is_folded(by_spark)


def test_unchanged_values_and_key_changes_keep_all_events(spark: SparkSession) -> None:
    unchanged = "__debezium_unavailable_value"
    lines = [
        record(envelope(10, "c", row(1, s="big")), {"id": 1}, offset=0),
        record(envelope(20, "u", row(1, s=unchanged)), {"id": 1}, offset=1),
        record(envelope(30, "d", {"id": 1}), {"id": 1}, offset=2, newkey={"id": 7}),
        record(None, {"id": 1}, offset=3),
        record(envelope(30, "c", row(7, s=unchanged)), {"id": 7}, offset=4, oldkey={"id": 1}),
    ]
    by_tasks, by_spark = both(spark, lines)
    # the event shares the highest order key, which is not the tombstone's
    assert_same(by_tasks, by_spark)
    assert not is_folded(by_tasks) and by_tasks.rows is not None and by_tasks.rows.frame.count() == 4


def test_late_events_are_recognized_by_the_marks_of_their_partition(spark: SparkSession) -> None:
    mark = "0001" + "0" * (WIDTH - 4)
    lines = [record(envelope(10, "c", row(1)), partition=p, offset=p) for p in (0, 1)]
    lines[1] = lines[1].replace('"id": 1', '"id": 2')
    known = Known(TYPES, marks={"db.shop.products/0": mark})
    by_tasks = decode_lines(spark, "debezium-json", lines, TARGET, known, records=True)
    assert by_tasks.passes == "one pass" and by_tasks.rows is not None
    assert {r["key"]["id"]: r["late"] for r in by_tasks.rows.frame.collect()} == {1: False, 2: True}


ODD = {
    "a fraction": envelope(1, "c", row(1, i=1.5)),
    "too big": envelope(1, "c", row(1, i=2**31)),
    "a rounded decimal": envelope(1, "c", row(1, d=1.005)),
    "a long decimal": envelope(1, "c", row(1, d=1234567890123456.5)),
    "a word": envelope(1, "c", row(1, f="x")),
    "an invalid day": envelope(1, "c", row(1, day="2024-02-30")),
    "an object": envelope(1, "c", row(1, s={"a": 1.0})),
    "infinity": envelope(1, "c", row(1, epoch=2**63 - 1)),
    "a new column": envelope(1, "c", row(1, new="x")),
    "digits that a double lacks": envelope(1, "c", row(1, f=2**53 + 1)),
    "the end of a day as an hour": envelope(1, "c", row(1, at="2024-01-02T24:00:00Z")),
    "an invalid zone": envelope(1, "c", row(1, at="2024-01-02T03:04:05+25:00")),
    "an update that changes the key": {**envelope(1, "u", row(1)), "before": {"id": 7}},
    "no key": envelope(1, "c", {"i": 1}),
    "truncate": {**envelope(1, "t", {}), "after": None},
    "another op": envelope(1, "z", row(1)),
    "with its schema": {"schema": {"fields": []}, "payload": envelope(1, "c", row(1))},
}


# these require a first pass over all messages
WHOLE = ("with its schema", "truncate")
# not an event
ASIDE = ("another op",)
# one read as an event, and one that requires a first pass over all messages
IN_CI = ("a new column", "truncate")


def summary(decoded: Decoded) -> tuple[Any, ...]:
    """Summarize a batch, without the fold's passes."""
    assert decoded.rows is not None
    names = sorted(c.name for c in decoded.columns)
    changes = [
        (r["key"], r["op"], r["row"] and [(n, r["row"][n]) for n in names if n in r["row"]], r["order"], r["old_key"])
        for r in fold(decoded.rows.frame).collect()
    ]
    rejected = decoded.rejected.messages.orderBy("order").collect() if decoded.rejected is not None else []
    return (
        sorted(changes, key=str),
        rejected,
        *(names, *counted(decoded), decoded.truncate_order, decoded.rejections),
    )


@pytest.mark.parametrize("case", on_demand(ODD, in_ci=IN_CI))
def test_odd_messages_do_not_change_other_rows(spark: SparkSession, case: str) -> None:
    lines = [
        record(envelope(10, "c", row(2)), {"id": 2}, offset=0),
        record(envelope(5, "c", row(7)), {"id": 7}, offset=1),
        record({**ODD[case], "source": {**envelope(20, "c", {})["source"], **ODD[case].get("source", {})}}, offset=2),
        record(envelope(30, "u", row(3)), {"id": 3}, offset=3),
    ]
    if case in WHOLE:
        lines[2] = record(ODD[case], offset=2)
    by_tasks, by_spark = both(spark, lines)
    engine = (
        "two passes: "
        if case in WHOLE
        else "one pass, then another over 1 of the messages: "
        if case in ASIDE
        else "one pass"
    )
    assert by_tasks.passes.startswith(engine) and (by_tasks.passes == engine) == (case not in (*WHOLE, *ASIDE))
    assert summary(by_tasks) == summary(by_spark)


@pytest.mark.soak
def test_rejected_odd_messages_keep_other_rows_packed(spark: SparkSession) -> None:
    lines = [record(envelope(10 + n, "c", row(n % 3)), {"id": n % 3}, offset=n) for n in range(7)]
    lines[3:3] = [record("{broken", offset=20), record(envelope(99, "c", row(1, i="x")), offset=21)]
    by_tasks, by_spark = both(spark, lines)
    assert is_folded(by_tasks) and by_tasks.rejections == 2
    assert summary(by_tasks) == summary(by_spark)


@pytest.mark.soak
def test_an_odd_message_completes_a_placeholder_and_is_completed(spark: SparkSession) -> None:
    unchanged = "__debezium_unavailable_value"
    lines = [
        record(envelope(10, "c", row(1, s="a")), {"id": 1}, offset=0),
        record(envelope(20, "u", row(1, s=unchanged, new="odd")), {"id": 1}, offset=1),
        record(envelope(10, "c", row(2, s="b", new="odd")), {"id": 2}, offset=2),
        record(envelope(20, "u", row(2, s=unchanged)), {"id": 2}, offset=3),
    ]
    by_tasks, by_spark = both(spark, lines)
    assert by_tasks.passes == "one pass" and by_tasks.rows is not None
    completed = sorted(
        (r["row"]["id"], r["row"]["s"], r["row"]["new"], r["open"]) for r in by_tasks.rows.frame.collect()
    )
    assert completed == [(1, "a", "odd", None), (2, "b", None, None)]
    assert ({*by_tasks.columns}, by_tasks.events) == ({*by_spark.columns}, by_spark.events)


@pytest.mark.soak
def test_key_updates_are_folded_with_other_events(spark: SparkSession) -> None:
    moved = {**envelope(20, "u", row(7)), "before": {"id": 2}}
    lines = [record(envelope(10 + n, "c", row(n)), {"id": n}, offset=n) for n in range(4)]
    by_tasks, by_spark = both(spark, [*lines, record(moved, offset=9)])
    assert by_tasks.passes == "one pass" and by_tasks.events == by_spark.events == 5
    assert is_folded(by_tasks)
    assert summary(by_tasks) == summary(by_spark)


@pytest.mark.parametrize("engine", on_demand(("tasks", "two passes"), in_ci=("tasks",)))
def test_values_of_a_rejected_message_are_not_taken_from_older_events(spark: SparkSession, engine: str) -> None:
    unchanged = "__debezium_unavailable_value"
    lines = [
        record(envelope(10, "c", row(1, s="a")), {"id": 1}, offset=0),
        record(envelope(11, "c", row(2)), {"id": 2}, offset=1),
        record(envelope(20, "u", row(1, s="b", i="x")), {"id": 1}, offset=2),
        record(envelope(30, "u", row(1, s=unchanged)), {"id": 1}, offset=3),
        record({**envelope(40, "u", row(7)), "before": {"id": 2}}, {"id": 7}, offset=4),
    ]
    # without a table all messages define its columns, so all are scanned
    types = {} if engine == "two passes" else TYPES
    target = replace(TARGET, columns=TYPES)
    by_tasks, by_spark = (
        decode_lines(spark, "debezium-json", lines, target, Known(types), records=True, engine=way)
        for way in ("tasks", "spark")
    )
    assert by_tasks.passes.startswith("two passes" if engine == "two passes" else "one pass")
    assert not is_folded(by_tasks) and by_tasks.rejections == 1
    assert summary(by_tasks) == summary(by_spark)


@pytest.mark.soak
def test_the_key_in_messages_must_be_the_tables(spark: SparkSession) -> None:
    target = replace(TARGET, key=())
    lines = [record(envelope(10 + n, "c", row(n % 3)), {"id": n % 3}, offset=n) for n in range(7)]
    by_tasks, by_spark = both(spark, lines, target, key=("id",))
    assert by_tasks.passes == "one pass" and is_folded(by_tasks) and by_tasks.key == by_spark.key == ("id",)
    assert summary(by_tasks) == summary(by_spark)
    new = decode_lines(spark, "debezium-json", lines, target, Known({}), records=True)
    assert (new.passes, new.key) == ("two passes: the key is in the messages", ("id",))
    other = [record(envelope(20, "c", row(5)), {"i": 5}, offset=9)]
    changed = decode_lines(spark, "debezium-json", other, target, Known(TYPES, key=("id",)), records=True)
    assert (changed.passes, changed.key) == ("two passes: another key", ("i",))
    mixed = decode_lines(spark, "debezium-json", lines + other, target, Known(TYPES, key=("id",)), records=True)
    assert mixed.passes == "two passes: another key"


@pytest.mark.soak
def test_events_without_a_key_are_decoded_in_one_pass(spark: SparkSession) -> None:
    target = replace(TARGET, key=(), mode="append")
    lines = [record(envelope(10 + n, "c", row(n % 3)), {"id": n % 3}, offset=n) for n in range(7)]
    by_tasks, by_spark = both(spark, lines, target)
    assert by_tasks.passes == "one pass" and by_tasks.rows is not None
    assert by_spark.rows is not None and by_tasks.key == by_spark.key == ()
    decoded, expected = (
        sorted((r["order"], *(r["row"][name] for name in TYPES)) for r in frame.collect())
        for frame in (by_tasks.rows.frame, by_spark.rows.frame)
    )
    assert decoded == expected and len(decoded) == 7


@pytest.mark.soak
def test_unreadable_messages_of_shared_topics_are_quarantined(spark: SparkSession) -> None:
    lines = [
        record(envelope(10, "c", row(2)), {"id": 2}, offset=0),
        record(envelope(11, "c", {"id": 5}, table="other"), {"id": 5}, offset=1),
        record("{broken", offset=2),
    ]
    by_tasks, by_spark = both(spark, lines, replace(TARGET, source_table="shop.t"))
    assert (
        by_tasks.passes == "one pass, then another over 1 of the messages: text that is not JSON"
        and by_tasks.rejections == 1
    )
    assert summary(by_tasks) == summary(by_spark)


@pytest.mark.soak
def test_invalid_json_is_set_aside_and_a_lone_tombstone_takes_two_passes(
    spark: SparkSession,
) -> None:
    good = record(envelope(10, "c", row(2)), {"id": 2}, offset=0)
    broken, by_spark = both(spark, [good, record("{broken", offset=1)])
    assert (
        broken.passes == "one pass, then another over 1 of the messages: text that is not JSON"
        and broken.rejections == 1
    )
    assert summary(broken) == summary(by_spark)
    lone, by_spark = both(spark, [good, record(None, {"id": 3}, offset=1)])
    assert lone.passes == "two passes: a tombstone without its delete"
    assert summary(lone) == summary(by_spark)


def test_a_new_table_gets_its_columns_from_the_first_messages(spark: SparkSession) -> None:
    lines = [record(envelope(n, "c", {"id": n, "v": "x"}), {"id": n}, offset=n) for n in range(1, 5)]
    decoded = decode_lines(spark, "debezium-json", lines, Target("shop.t", key=("id",)), Known({}), records=True)
    assert decoded.passes == "one pass" and {c.name: c.type for c in decoded.columns} == {"id": "bigint", "v": "string"}


@pytest.mark.soak
def test_an_excluded_column_is_not_a_new_column(spark: SparkSession) -> None:
    target = Target("shop.t", key=("id",), columns=TYPES, encodings={"epoch": "epoch_micros"}, exclude_columns=("x",))
    decoded = decode_lines(spark, "debezium-json", [json.dumps(envelope(1, "c", row(1, x="y")))], target, Known(TYPES))
    assert decoded.passes == "one pass" and "x" not in {c.name for c in decoded.columns}


#: change, commit and event serial number, in order
Log = list[tuple[str | None, str, int | None]]
OF_SQL_SERVER: Log = [
    (None, "00000027:00000758:0003", None),
    ("00000026:0fffffff:0fff", "00000027:00000758:0005", 1),
    ("00000027:00000750:0001", "00000027:00000758:0005", 1),
    ("00000027:00000750:0002", "00000027:00000758:0005", 1),
    ("00000027:00000750:0002", "00000027:00000758:0005", 2),
    ("00000027:00000758:0002", "00000027:00000758:0005", 1),
    ("00000027:00000758:0001", "00000027:00000758:0010", 1),
    ("00000027:00000740:0001", "00000027:00000A00:0002", 1),
    ("00000027:00000758:0001", "00000100:00000010:0002", 1),
    ("000F9F22:00001220:0003", "000F9F22:00001660:0003", 2),
]
OF_DB2: Log = [
    (None, "00000000:00001e36:000000000004a1b4", None),
    ("00000000:00000000:000000000446140f", "00000000:00001e36:000000000004a1b4", None),
    ("00000000:00000000:0fffffffffffffff", "00000000:00001e36:000000000004a1b5", None),
    ("00000000:00000000:0000000006f4b31f", "00000000:000102b5:000000000007bf55", None),
    ("00000000:00000000:0000000000000001", "00000001:00000000:0000000000000000", None),
]
# the forms of SQL Server, with two bytes more than it has digits for
OF_DB2_FOR_ZOS: Log = [
    ("00d5c1a2:b3c4d5e6:f708", "00d5c1a2:b3c4d5e6:f710", None),
    ("00d5c1a2:b3c4d5e6:ffff", "00d5c1a2:b3c4d5e7:0000", None),
    ("00d5c1a2:b3c4d5e7:0000", "00d5c1a2:b3c4d5e7:0000", None),
    ("00d5c1a2:b3c4d5e7:f001", "00d5c1a2:b3c4d5e7:f002", None),
]


@pytest.mark.parametrize(
    ("connector", "log"),
    on_demand(
        [("sqlserver", OF_SQL_SERVER), ("db2", OF_DB2), ("db2", OF_DB2_FOR_ZOS)], in_ci=[("sqlserver", OF_SQL_SERVER)]
    ),
    ids=["SQL Server", "Db2", "Db2 for z/OS"],
)
def test_log_sequence_numbers_order_events(spark: SparkSession, connector: str, log: Log) -> None:
    lines = []
    for key, (change, commit, serial) in enumerate(log):
        event = envelope(0, "c" if change else "r", row(key))
        event["source"] = {
            **{"connector": connector, "db": "d", "schema": "shop", "table": "t", "ts_ms": 1_700_000_000_000 - key},
            **{"snapshot": "false" if change else "true"},
            **{"change_lsn": change, "commit_lsn": commit, "event_serial_no": serial},
        }
        lines.append(record(event, {"id": key}, offset=100 - key))
    by_tasks, by_spark = both(spark, lines)
    assert_same(by_tasks, by_spark)
    orders = [change["order"] for _, change in rows(by_tasks)]
    assert orders == sorted(orders) and len({order[:36] for order in orders}) == len(log)
    assert {len(order) for order in orders} == {WIDTH}
    if log == OF_DB2_FOR_ZOS:
        # flattened events do not show that they come from Db2
        return
    flat = []
    for line in lines:
        value = json.loads(line)["value"]
        positions = {f"__{name}": value["source"][name] for name in ("commit_lsn", "change_lsn", "event_serial_no")}
        flat.append(json.dumps({**value["after"], "__op": value["op"], **positions}))
    flattened = decode_lines(spark, "debezium-flat-json", flat, TARGET, Known(TYPES))
    assert [change["order"][:37] for _, change in rows(flattened)] == [order[:37] for order in orders]
