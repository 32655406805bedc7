"""Both ways of the log leave the same table: tasks fold and write, or Spark casts and folds and Iceberg writes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.ingest.apply import packed
from lakecdc.ingest.engine import log
from lakecdc.ingest.engine.log import LogRows
from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.log.source import LogSource
from lakecdc.ingest.sources.postgres import log as wal
from lakecdc.ingest.sources.postgres.reading import Bounds
from lakecdc.ingest.table_run import TableRun
from tests.lakecdc.ingest.sources.log_ways import (
    WAYS,
    assert_same_events,
    assert_the_same,
    by_each_way,
    files_of,
    rows_of,
)

from .conftest import Shop
from .test_arrow_load import create, insert
from .test_rounds import big

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(shop: Shop) -> dict[str, TableReport]:
    """Feed ``s.t`` into one table per engine, each through a separate slot."""
    return by_each_way(shop, lambda way: {"slot": f"{shop.schema}_{way}"})


def drop_slots(shop: Shop) -> None:
    """Drop the slots at the server shared with other tests."""
    for way in WAYS:
        shop.sql(f"SELECT pg_drop_replication_slot('{shop.schema}_{way}'); DROP PUBLICATION {shop.schema}_{way}")


def write(shop: Shop) -> None:
    """Insert, update and delete rows, change keys, and insert deleted keys again."""
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
        # the same keys again, above files that have them, by many tasks
        monkeypatch.setattr(log, "_TYPED_AT_ONCE", (150, 1 << 40))
        monkeypatch.setattr(log, "_FOLDED_AT_ONCE", (100, 1 << 40))
        shop.sql("UPDATE s.t SET c2 = 7 WHERE id < 3; DELETE FROM s.t WHERE id % 3 = 0; UPDATE s.t SET id = id + 9000")
        again = run(shop)
        assert again["by_tasks"].metrics["events_u"] > 400
        assert_the_same(shop.lake, shop.schema, again, columns, shop.sql(count)[0][0])
    finally:
        drop_slots(shop)


def test_odd_values_types_and_statements_are_read_alike(shop: Shop) -> None:
    kinds = {"plain": "int", "odd": "date", "octets": "bytea", "cast": "int", "altered": "int", "emptied": "int"}
    kinds |= {"large": "text", "moved": "text", "logged": "int"}
    settings: dict[str, dict[str, Any]] = {
        "cast": {"columns": {"v": "decimal(3,1)"}},
        "logged": {"history_table": f"{shop.schema}.logged_history", "clean": {"filter": "n < 9"}},
    }
    for name, kind in kinds.items():
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, n int, v {kind})")
        shop.target(name, **settings.get(name, {}))
    for name in ("large", "moved"):
        shop.sql(f"INSERT INTO s.{name} VALUES (1, 0, {big('a')})")
    ingest(shop.lake.spark, shop.spec())
    values = {"odd": "'10000-01-01'", "octets": "'x'", "large": "'small'", "moved": "'small'"}
    for name in kinds:
        shop.sql(f"INSERT INTO s.{name} VALUES (2, 0, {values.get(name, '5')}); UPDATE s.{name} SET n = n + 1")
    shop.sql("ALTER TABLE s.altered ADD w int; INSERT INTO s.altered VALUES (3, 0, 5, 5)")
    shop.sql("TRUNCATE s.emptied; INSERT INTO s.emptied VALUES (3, 1, 5); UPDATE s.moved SET id = 3 WHERE id = 1")
    spec = shop.spec(options={"max_quarantined_fraction": 1.0})
    reports = {r.table.rpartition(".")[2]: r for r in ingest(shop.lake.spark, spec)}
    assert {name: report.outcome for name, report in reports.items()} == dict.fromkeys(kinds, "done")
    # years that some readers of Iceberg tables refuse
    assert {name: n for name, r in reports.items() if (n := r.metrics.get("quarantined"))} == {"odd": 2}
    for name in kinds.keys() - {"odd"}:
        rows = shop.lake.duckdb_rows(f"{shop.schema}.{name}", "id, n, v")
        assert sorted(rows) == shop.sql(f"SELECT id, n, v FROM s.{name} ORDER BY id"), name


LARGE = 'id, n, "Large", octets, small'


def write_large(shop: Shop, rng: random.Random, statements: int) -> int:
    """Run random statements on rows whose large values mostly stay; return the number of events."""
    keys = [row[0] for row in shop.sql("SELECT id FROM s.t ORDER BY id")]
    script, events = [], 0
    for number in range(statements):
        key, value = rng.choice(keys or [0]), big(str(rng.random()))
        choice = rng.randrange(10) if keys else 0
        if choice < 2:
            keys.append(max([*keys, 100]) + 1)
            octets = f"convert_to({value}, 'UTF8')"
            script.append(f"INSERT INTO s.t VALUES ({keys[-1]}, {number}, {value}, {octets}, 's{number}')")
        elif choice < 7:
            also = {2: f', "Large" = {value}', 3: f", octets = convert_to({value}, 'UTF8')", 4: ", octets = null"}
            script.append(f"UPDATE s.t SET n = {number}{also.get(choice, '')} WHERE id = {key}")
        elif choice < 8:
            keys.remove(key)
            script.append(f"DELETE FROM s.t WHERE id = {key}")
        elif choice < 9:
            # deleted and inserted again, with null where the earlier row had a value
            script.append(f"DELETE FROM s.t WHERE id = {key}; INSERT INTO s.t (id, n) VALUES ({key}, {number})")
            events += 1
        else:
            new = keys[keys.index(key)] = max([*keys, 100]) + 1
            script.append(f'UPDATE s.t SET id = {new}, "Large" = {value}, octets = null WHERE id = {key}')
            events += 1
        events += 1
        if rng.random() < 0.3:
            script.append("COMMIT; BEGIN")
    shop.sql(f"BEGIN; {'; '.join(script)}; COMMIT")
    return events


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_both_ways_complete_rows_alike(shop: Shop, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    shop.sql('CREATE TABLE s.t (id int PRIMARY KEY, n int, "Large" text, octets bytea, small text)')
    rng, logged = random.Random(seed), f"{shop.schema}.{{way}}_log"
    with_log = {"history_table": logged, "history_partition_by": ["days(_lakecdc_source_time)"]}
    try:
        by_each_way(shop, lambda way: {"slot": f"{shop.schema}_{way}"}, **with_log)
        events, metrics = 0, []
        for at_once, few in ((1 << 40, 20_000), (1 << 40, 20_000), (9, 0)):
            monkeypatch.setattr(packed, "_FEW_ROWS", few)
            monkeypatch.setattr(log, "_TYPED_AT_ONCE", (at_once, 1 << 40))
            monkeypatch.setattr(log, "_FOLDED_AT_ONCE", (at_once, 1 << 40))
            events += write_large(shop, rng, 40)
            reports = by_each_way(shop, lambda way: {"slot": f"{shop.schema}_{way}"}, **with_log)
            assert_the_same(shop.lake, shop.schema, reports, LARGE, shop.sql("SELECT count(*) FROM s.t")[0][0])
            assert_same_events(shop.lake, [logged.format(way=way) for way in WAYS], LARGE, events)
            metrics.append(reports["by_tasks"].metrics)
        # Spark writes completed rows, and a few others with them
        assert metrics[1]["data_files"] == reports["by_spark"].metrics["data_files"] < metrics[2]["data_files"]
        assert 0 < metrics[-1]["completion_lookups"] < metrics[-1]["completions"]
        assert {file[0] for file in files_of(shop.lake, logged.format(way="by_tasks"))} == {"events"}
        rows = shop.lake.duckdb_rows(f"{shop.schema}.by_tasks", LARGE)
        assert sorted(rows) == shop.sql(f"SELECT {LARGE} FROM s.t ORDER BY id")
    finally:
        drop_slots(shop)


@pytest.mark.parametrize(
    ("policy", "left"), [("apply", (20, 0)), pytest.param("mark", (29, 30), marks=pytest.mark.soak)]
)
def test_both_ways_apply_a_truncate_alike(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, policy: str, left: tuple[int, int]
) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int)")
    monkeypatch.setattr(log, "_TYPED_AT_ONCE", (9, 1 << 40))
    monkeypatch.setattr(log, "_FOLDED_AT_ONCE", (9, 1 << 40))
    logged = f"{shop.schema}.{{way}}_log"
    rounds = {
        "SELECT 1": (0, 0),
        "INSERT INTO s.t SELECT i, 0 FROM generate_series(1, 30) i; "
        "UPDATE s.t SET n = 1 WHERE id < 9; TRUNCATE s.t; INSERT INTO s.t SELECT i, 2 FROM generate_series(5, 25) i; "
        "DELETE FROM s.t WHERE id = 7": (left[0], 61),
        "INSERT INTO s.t VALUES (40, 4); TRUNCATE s.t": (left[1], 63),
    }
    try:
        for script, (rows, events) in rounds.items():
            shop.sql(script)
            more = {"on_truncate": policy, "history_table": logged}
            reports = by_each_way(shop, lambda way: {"slot": f"{shop.schema}_{way}"}, **more)
            if rows or events:
                assert_the_same(shop.lake, shop.schema, reports, "id, n", rows)
                assert_same_events(shop.lake, [logged.format(way=way) for way in WAYS], "id, n", events)
    finally:
        drop_slots(shop)


def test_tasks_fold_parked_rounds(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int); INSERT INTO s.t SELECT i, 0 FROM generate_series(1, 9) i")
    name, folded, fold = shop.target("t"), list[bool](), LogSource._fold

    def recorded(*given: Any) -> LogRows:
        log_rows = fold(*given)
        folded.append(log_rows.rows.folded)
        return log_rows

    def fails(*_: Any) -> None:
        raise OSError("no space")

    ingest(shop.lake.spark, shop.spec())
    shop.sql("UPDATE s.t SET n = 1 WHERE id < 5; DELETE FROM s.t WHERE id = 3; UPDATE s.t SET id = 20 WHERE id = 4")
    with monkeypatch.context() as patch:
        patch.setattr(TableRun, "apply", fails)
        assert ingest(shop.lake.spark, shop.spec())[0].outcome == "failed"
    shop.sql("UPDATE s.t SET n = n + 1 WHERE id > 8")
    monkeypatch.setattr(LogSource, "_fold", recorded)
    report = ingest(shop.lake.spark, shop.spec())[0]
    assert report.metrics["parked_rounds"] == 1 and folded == [True, True], report.reason
    assert sorted(shop.lake.duckdb_rows(name, "id, n")) == shop.sql("SELECT * FROM s.t ORDER BY id")


@pytest.mark.soak
def test_only_the_event_that_fails_clean_is_quarantined(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int)")
    clean = {"compute": {"share": "100 / n"}}
    rows_by_way = {}
    try:
        for rows in (
            "",
            "INSERT INTO s.t SELECT i, 1 FROM generate_series(1, 40) i; UPDATE s.t SET n = 0 WHERE id = 2",
        ):
            shop.sql(rows or "SELECT 1")
            reports = by_each_way(shop, lambda way: {"slot": f"{shop.schema}_{way}"}, clean=clean)
        for way in WAYS:
            assert (reports[way].outcome, reports[way].metrics.get("quarantined")) == ("done", 1), reports[way]
            rows_by_way[way] = rows_of(shop.lake, f"{shop.schema}.{way}", "id, n, share")
        assert rows_by_way["by_tasks"] == rows_by_way["by_spark"] and len(rows_by_way["by_spark"]) == 40
    finally:
        drop_slots(shop)


def test_a_round_read_again_with_more_log_is_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read = rounds.read

    def lost(spark: SparkSession, task: wal.ReadLog, summary: type[Any]) -> tuple[Any, DataFrame]:
        first, cells = read(spark, replace(task, limits=Bounds(seconds=1e-9)), summary)
        cells.unpersist()
        return first, cells

    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int)")
    name = shop.target("t")
    ingest(shop.lake.spark, shop.spec())
    for number in range(3):
        shop.sql(f"INSERT INTO s.t VALUES ({number}, 0), ({number + 10}, 0)")
    monkeypatch.setattr(rounds, "read", lost)
    metrics = ingest(shop.lake.spark, shop.spec())[0].metrics
    assert metrics["commits"] == 3
    assert (metrics["events_c"], metrics["rows_written"]) == (6, 6), "events after a round's end belong to the next one"
    assert sorted(shop.lake.duckdb_rows(name, "id, n")) == shop.sql("SELECT * FROM s.t ORDER BY id")
