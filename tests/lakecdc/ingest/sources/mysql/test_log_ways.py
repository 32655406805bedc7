"""Both ways of the log leave the same table: tasks fold and write, or Spark casts and folds and Iceberg writes."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.ingest.engine import log
from lakecdc.ingest.job import ingest
from tests.lakecdc.ingest.sources.log_ways import WAYS, assert_same_events, assert_the_same, by_each_way, files_of

from .conftest import Shop
from .test_arrow_load import create, insert

pytestmark = pytest.mark.services


def write(shop: Shop) -> None:
    """Insert, update and delete rows, change keys, and insert deleted keys again."""
    insert(shop)
    shop.sql(
        "BEGIN",
        "UPDATE s.t SET c0 = 1 - c0, c1 = 7 WHERE id % 2 = 0 AND id < 0",
        "UPDATE s.t SET id = id - 1000, `Part, a` = 'moved' WHERE id BETWEEN -60 AND -40",
        "DELETE FROM s.t WHERE id % 5 = 0 AND id < 0",
        "INSERT INTO s.t (id, `Part, a`) SELECT -(5 * seq), 'r' FROM seq_1_to_6",
        "UPDATE s.t SET id = id + 5000 WHERE id = -7",
        "UPDATE s.t SET id = id - 5000 WHERE id > 4000",
        "COMMIT",
    )


@pytest.mark.soak
def test_both_ways_leave_the_same_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, count = ", ".join(create(shop)), "SELECT count(*) FROM s.t"
    by_each_way(shop)
    write(shop)
    first = by_each_way(shop)
    assert first["by_tasks"].metrics["zero_dates"] == first["by_spark"].metrics["zero_dates"] > 0
    assert_the_same(shop.lake, shop.schema, first, columns, shop.sql(count)[0][0])
    # the same keys again, above files that have them, by many tasks
    monkeypatch.setattr(log, "_TYPED_AT_ONCE", (150, 1 << 40))
    monkeypatch.setattr(log, "_FOLDED_AT_ONCE", (100, 1 << 40))
    shop.sql(
        "SET sql_mode = ''", "UPDATE s.t SET c2 = 7 WHERE id < 3", "DELETE FROM s.t WHERE id % 3 = 0",
        "UPDATE s.t SET id = id + 9000",
    )  # fmt: skip
    again = by_each_way(shop)
    assert again["by_tasks"].metrics["events_u"] > 250
    assert_the_same(shop.lake, shop.schema, again, columns, shop.sql(count)[0][0])


def test_both_ways_keep_the_same_events(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, logged = ", ".join(create(shop)), f"{shop.schema}.{{way}}_log"
    by_each_way(shop, history_table=logged)
    write(shop)
    shop.sql("SET sql_mode = ''", "UPDATE s.t SET c2 = 7 WHERE id < 3", "UPDATE s.t SET id = id + 9000 WHERE id > 0")
    monkeypatch.setattr(log, "_TYPED_AT_ONCE", (400, 1 << 40))
    monkeypatch.setattr(log, "_FOLDED_AT_ONCE", (400, 1 << 40))
    reports = by_each_way(shop, history_table=logged)
    assert_the_same(shop.lake, shop.schema, reports, columns, shop.sql("SELECT count(*) FROM s.t")[0][0])
    events, tables = reports["by_spark"].metrics["history_rows"], [logged.format(way=way) for way in WAYS]
    assert_same_events(shop.lake, tables, columns, events)
    assert {file[0] for file in files_of(shop.lake, tables[0])} == {"events"} and events > 1000


def test_both_ways_append_the_same_rows(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int, moment datetime, octets varbinary(9))")
    settings: dict[str, Any] = {"mode": "append", "partition_by": ["hours(moment)"]}
    by_each_way(shop, **settings)
    shop.sql(
        "INSERT INTO s.t VALUES (1, '2026-01-31 23:30:00', x'00'), (2, '1969-12-31 23:30:00', null), (3, null, x'')"
    )
    reports = by_each_way(shop, **settings)
    assert_the_same(shop.lake, shop.schema, reports, "id, moment, octets", 3)
    by_tasks, by_spark = (files_of(shop.lake, f"{shop.schema}.{way}") for way in WAYS)
    assert [file[1:] for file in by_tasks] == [file[1:] for file in by_spark]
    assert {file[0] for file in by_tasks} == {"events"}


@pytest.mark.soak
def test_keys_may_be_bytes(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id varbinary(9) PRIMARY KEY, n int)")
    by_each_way(shop)
    shop.sql("INSERT INTO s.t VALUES (x'', 1), (x'00ff', 2), (x'0100', 3), (x'fe', 4)")
    first = by_each_way(shop)
    assert_the_same(shop.lake, shop.schema, first, "id, n", 4)
    shop.sql("UPDATE s.t SET id = x'ab' WHERE id = x'0100'", "DELETE FROM s.t WHERE id = ''", "UPDATE s.t SET n = 9")
    assert_the_same(shop.lake, shop.schema, by_each_way(shop), "id, n", 3)


def test_odd_values_types_and_statements_are_read_alike(shop: Shop) -> None:
    kinds = {"plain": "int", "odd": "date", "octets": "blob", "cast": "int", "altered": "int", "emptied": "int"}
    settings: dict[str, dict[str, Any]] = {"cast": {"columns": {"v": "decimal(3,1)"}}}
    settings["octets"] = {"columns": {"v": "string"}}
    for name, kind in kinds.items():
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v {kind})")
        shop.target(name, **settings.get(name, {}))
    ingest(shop.lake.spark, shop.spec())
    values = {"odd": "'2024-02-31'", "octets": "'x'"}
    for name in kinds:
        shop.sql("SET sql_mode = 'ALLOW_INVALID_DATES'", f"INSERT INTO s.{name} VALUES (2, {values.get(name, '5')})")
    shop.sql("ALTER TABLE s.altered ADD w int", "INSERT INTO s.altered VALUES (3, 5, 5)")
    shop.sql("TRUNCATE s.emptied", "INSERT INTO s.emptied VALUES (3, 5)")
    reports = {r.table.rpartition(".")[2]: r for r in ingest(shop.lake.spark, shop.spec())}
    assert {name: r.outcome for name, r in reports.items()} == dict.fromkeys(kinds, "done")
    assert shop.lake.duckdb_rows(f"{shop.schema}.odd", "id, v") == [(2, None)]
    assert shop.lake.duckdb_rows(f"{shop.schema}.octets", "id, v") == [(2, "x")]
    for name in kinds.keys() - {"odd", "octets"}:
        rows = shop.lake.duckdb_rows(f"{shop.schema}.{name}", "id, v")
        assert sorted(rows) == shop.sql(f"SELECT id, v FROM s.{name} ORDER BY id"), name
