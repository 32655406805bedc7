"""Both ways of the log leave the same table: tasks fold and write, or Spark casts and folds and Iceberg writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.formats.native import log
from lakecdc.ingest.formats.pgoutput import Bounds
from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.postgres import log as wal
from tests.lakecdc.ingest.sources.log_ways import WAYS, assert_the_same, by_each_way

from .conftest import Shop
from .test_arrow_load import create, insert
from .test_rounds import big

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(shop: Shop) -> dict[str, TableReport]:
    """Feed ``s.t`` into a table for each way, through a slot of its own."""
    return by_each_way(shop, lambda way: {"slot": f"{shop.schema}_{way}"})


def drop_slots(shop: Shop) -> None:
    """Leave nothing at the server that the other tests share."""
    for way in WAYS:
        shop.sql(f"SELECT pg_drop_replication_slot('{shop.schema}_{way}'); DROP PUBLICATION {shop.schema}_{way}")


def write(shop: Shop) -> None:
    """All that can happen to rows: inserts, updates, deletes, other keys, and the same keys again."""
    insert(shop)
    shop.sql("UPDATE s.t SET c0 = NOT c0, c1 = -c1 WHERE id % 2 = 0 AND id < 0")
    shop.sql("""UPDATE s.t SET id = id - 1000, "Part, a" = 'moved' WHERE id BETWEEN -60 AND -40""")
    shop.sql("DELETE FROM s.t WHERE id % 5 = 0 AND id < 0")
    shop.sql(
        """BEGIN; INSERT INTO s.t (id, "Part, a") SELECT -i, md5(i::text) FROM generate_series(5, 30, 5) i;
        UPDATE s.t SET id = id + 5000 WHERE id = -7; UPDATE s.t SET id = id - 5000 WHERE id > 4000;
        DELETE FROM s.t WHERE id = -8; COMMIT"""
    )


def test_both_ways_leave_the_same_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ", ".join(create(shop))
    try:
        run(shop)
        write(shop)
        first = run(shop)
        count = "SELECT count(*) FROM s.t"
        assert_the_same(shop.lake, shop.schema, first, columns, shop.sql(count)[0][0])
        # the same keys again, above files that hold them, by many tasks
        monkeypatch.setattr(log, "_TYPED_AT_ONCE", (150, 1 << 40))
        monkeypatch.setattr(log, "_FOLDED_AT_ONCE", (100, 1 << 40))
        shop.sql("UPDATE s.t SET c2 = 7 WHERE id < 3; DELETE FROM s.t WHERE id % 3 = 0; UPDATE s.t SET id = id + 9000")
        again = run(shop)
        assert again["by_tasks"].metrics["events_u"] > 400
        assert_the_same(shop.lake, shop.schema, again, columns, shop.sql(count)[0][0])
    finally:
        drop_slots(shop)


def test_what_is_not_plain_is_left_to_the_jvm(shop: Shop) -> None:
    kinds = {"plain": "int", "odd": "date", "octets": "bytea", "cast": "int", "altered": "int", "emptied": "int"}
    kinds |= {"large": "text", "logged": "int"}
    settings: dict[str, dict[str, Any]] = {
        "cast": {"columns": {"v": "decimal(3,1)"}},
        "logged": {"history_table": f"{shop.schema}.logged_history"},
    }
    for name, kind in kinds.items():
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, n int, v {kind})")
        shop.target(name, **settings.get(name, {}))
    shop.sql(f"INSERT INTO s.large VALUES (1, 0, {big('a')})")
    ingest(shop.lake.spark, shop.spec())
    values = {"odd": "'10000-01-01'", "octets": "'x'", "large": "'small'"}
    for name in kinds:
        shop.sql(f"INSERT INTO s.{name} VALUES (2, 0, {values.get(name, '5')}); UPDATE s.{name} SET n = n + 1")
    shop.sql("ALTER TABLE s.altered ADD w int; INSERT INTO s.altered VALUES (3, 0, 5, 5)")
    shop.sql("TRUNCATE s.emptied; INSERT INTO s.emptied VALUES (3, 1, 5)")
    reports = {r.table.rpartition(".")[2]: r for r in ingest(shop.lake.spark, shop.spec())}
    assert {name: report.outcome for name, report in reports.items()} == dict.fromkeys(kinds, "done")
    assert {name: report.metrics["decoded_by"] for name, report in reports.items()} == {
        "plain": "native",
        "odd": "jvm: column 'v': Failed to parse string: '10000-01-01' as a scalar of type date32[day]",
        "octets": "jvm: column 'v' is binary, made of binary",
        "cast": "jvm: column 'v' is decimal(3,1), made of int",
        "altered": "jvm: the source has altered the table",
        "emptied": "jvm: a TRUNCATE",
        "large": "jvm: an update leaves values out that it did not touch",
        "logged": "jvm: every event is wanted",
    }
    for name in kinds.keys() - {"odd"}:
        found = shop.lake.duckdb_rows(f"{shop.schema}.{name}", "id, n, v")
        assert sorted(found) == shop.sql(f"SELECT id, n, v FROM s.{name} ORDER BY id"), name


def test_a_round_that_goes_on_when_it_is_read_again_is_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read = wal.read

    def lost(spark: SparkSession, task: wal.ReadLog) -> wal.Round:
        found = read(spark, replace(task, bounds=Bounds(seconds=1e-9)))
        assert found.cells is not None
        found.cells.unpersist()
        return found

    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int)")
    name = shop.target("t")
    ingest(shop.lake.spark, shop.spec())
    for number in range(3):
        shop.sql(f"INSERT INTO s.t VALUES ({number}, 0), ({number + 10}, 0)")
    monkeypatch.setattr(wal, "read", lost)
    metrics = ingest(shop.lake.spark, shop.spec())[0].metrics
    assert (metrics["decoded_by"], metrics["commits"]) == ("native", 3)
    assert (metrics["events_c"], metrics["rows_written"]) == (6, 6), "what comes behind a round's end is the next one's"
    assert sorted(shop.lake.duckdb_rows(name, "id, n")) == shop.sql("SELECT * FROM s.t ORDER BY id")
