"""A target receives the events of its own source table, whatever else a batch contains and wherever batches are cut."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.source_tables import feeds, is_another
from lakecdc.ingest.formats.envelope import Reading
from tests.lakecdc.ingest.by_spark import both_engines, with_engine
from tests.lakecdc.ingest.formats.decoding import decode_lines, record, state
from tests.on_demand import on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = Target("lake.paimon_1", key=("id",))
TYPES = {"id": "bigint", "v": "string"}


@pytest.mark.parametrize(
    ("target", "source_table", "topics", "feeds_it"),
    [
        ({}, "db.paimon_1", (), True),
        ({}, "paimon_1", (), True),
        ({}, "DB.PAIMON_1", (), True),
        ({}, "db.paimon_2", (), False),
        ({}, "db.other_paimon_1", (), False),
        # the topic of one table names it, a topic of many tables does not
        ({}, "shop.orders", ("pg.shop.orders",), True),
        ({}, "events", ("events",), True),
        ({}, "shop.orders", ("everything",), False),
        ({"source_table": "shop.orders"}, "shop.orders", (), True),
        ({"source_table": "shop.orders"}, "lake.paimon_1", (), False),
        ({"source_table": "shop.orders"}, "shop.Orders", (), False),
        # the topic tells one table from others of the same name
        ({"source_table": "pg.shop.orders"}, "shop.orders", ("pg.shop.orders",), True),
        ({"source_table": "pg.shop.orders"}, "shop.lines", ("pg.shop.lines",), False),
        ({"source_tables": ("paimon_[12]",)}, "db.paimon_2", (), True),
        ({"source_tables": ("paimon_[12]",)}, "db.paimon_3", ("db.paimon_3",), False),
    ],
)
def test_which_source_tables_feed_a_target(
    target: dict[str, Any], source_table: str, topics: tuple[str, ...], feeds_it: bool
) -> None:
    assert feeds(Target("lake.paimon_1", **target), source_table, topics) is feeds_it


@pytest.mark.parametrize(
    ("known", "source_table", "named", "another"),
    [
        ("a.paimon_1", "a.paimon_1", None, False),
        ("a.paimon_1", "b.paimon_1", None, True),
        ("a.paimon_1", "b.paimon_1", "paimon_1", True),
        # names with more or fewer parts, or in another case
        ("a.paimon_1", "A.PAIMON_1", None, False),
        ("a.paimon_1", "paimon_1", None, False),
        ("paimon_1", "a.paimon_1", None, False),
        # a named schema is a choice
        ("a.paimon_1", "b.paimon_1", "b.paimon_1", False),
    ],
)
def test_a_table_of_the_same_name_in_another_schema_is_another_table(
    known: str, source_table: str, named: str | None, another: bool
) -> None:
    assert is_another(Target("lake.paimon_1", source_table=named), known, source_table) is another


def maxwell(table: str, number: int) -> dict[str, Any]:
    row = {"id": number, "v": table}
    return {"database": "db", "table": table, "type": "insert", "ts": 5, "xid": number, "commit": True, "data": row}


def canal(table: str, number: int) -> dict[str, Any]:
    row = {"id": str(number), "v": table}
    place = {"database": "db", "table": table, "es": 5000, "ts": 6000, "id": number, "isDdl": False, "old": None}
    return {**place, "type": "INSERT", "mysqlType": {"id": "bigint", "v": "text"}, "data": [row]}


def debezium(table: str, number: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "db", "table": table, "lsn": number, "ts_ms": 1_700_000_000_000}
    return {"op": "c", "before": None, "after": {"id": number, "v": table}, "source": source}


def flat(table: str, number: int) -> dict[str, Any]:
    return {"id": number, "v": table, "__op": "c", "__table": table, "__lsn": number, "__source_ts_ms": 7}


def ogg(table: str, number: int) -> dict[str, Any]:
    row = {"id": number, "v": table}
    return {"table": f"db.{table}", "pos": f"{number:08}", "op_type": "I", "op_ts": "2024-01-02 03:04:05", "after": row}


def dms(table: str, number: int) -> dict[str, Any]:
    about = {"record-type": "data", "operation": "insert", "schema-name": "db", "table-name": table}
    return {"data": {"id": number, "v": table}, "metadata": {**about, "timestamp": "2024-01-02T03:04:05.6Z"}}


MAKE = {
    "maxwell-json": maxwell,
    "canal-json": canal,
    "debezium-json": debezium,
    "debezium-flat-json": flat,
    "ogg-json": ogg,
    "dms-json": dms,
}
IN_CI: list[tuple[str, str, dict[str, str]]] = [("maxwell-json", "tasks", {}), ("debezium-json", "tasks", TYPES)]


def decoded(spark: SparkSession, name: str, tables: list[str], known: Known, **reading: Any) -> Decoded:
    """Decode one event of each table, at its number as place."""
    lines = [json.dumps(MAKE[name](table, number)) for number, table in enumerate(tables, 1)]
    return decode_lines(spark, name, lines, TARGET, known, Reading(1, **reading))


@pytest.mark.parametrize(
    ("name", "engine", "types"), on_demand(product(MAKE, ("tasks", "spark"), ({}, TYPES)), in_ci=IN_CI)
)
def test_rows_of_other_tables_are_excluded_in_any_batches(
    spark: SparkSession, name: str, engine: str, types: dict[str, str]
) -> None:
    known = Known(types)
    with with_engine(engine):
        assert state(decoded(spark, name, ["paimon_1", "paimon_2", "paimon_1"], known), ("id",)) == [(1,), (3,)]
        others = decoded(spark, name, ["paimon_2"], known)
    assert (others.rows, others.events, others.rejections) == (None, 0, 0)
    if engine == "spark" or not types:
        assert [table.removeprefix("db.") for table in others.others] == ["paimon_2"]


@both_engines
def test_a_selected_topic_of_one_table_selects_that_table(spark: SparkSession, engine: str) -> None:
    def count_events(topic: str, *, routed: bool, source_table: str | None = None) -> int:
        lines = [record(debezium("orders", 1), {"id": 1}, topic=topic)]
        target, reading = replace(TARGET, source_table=source_table), Reading(1, routed=routed)
        known = Known(TYPES)
        decoded = decode_lines(spark, "debezium-json", lines, target, known, reading, records=True, engine=engine)
        return decoded.events

    assert count_events("pg.db.orders", routed=True) == 1
    assert count_events("pg.db.orders", routed=False) == 0
    assert count_events("pg.everything", routed=True) == 0
    # named as one of many topics
    assert count_events("pg.db.orders", routed=True, source_table="pg.db.orders") == 1
    assert count_events("pg.db.orders", routed=True, source_table="pg.db.lines") == 0


@pytest.mark.parametrize("source_table", [None, pytest.param("paimon_1", marks=pytest.mark.soak)])
def test_tables_of_one_name_in_two_schemas_need_a_schema(spark: SparkSession, source_table: str | None) -> None:
    lines = [json.dumps({**maxwell("paimon_1", n), "database": db}) for n, db in ((1, "a"), (2, "b"))]
    target = Target("lake.paimon_1", key=("id",), source_table=source_table)
    with pytest.raises(InputError, match=r"several source tables: a\.paimon_1, b\.paimon_1"):
        decode_lines(spark, "maxwell-json", lines, target)
    of_b = Target("lake.paimon_1", key=("id",), source_table="b.paimon_1")
    assert state(decode_lines(spark, "maxwell-json", lines, of_b), ("id",)) == [(2,)]
