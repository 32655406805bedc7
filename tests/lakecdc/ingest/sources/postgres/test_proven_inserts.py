"""Rows inserted by the log get no equality delete if the table cannot have them; every other key gets one."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import psycopg
import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.target import Target
from lakecdc.erase.job import erase_rows
from lakecdc.iceberg.table import Snapshot
from lakecdc.ingest.sources.postgres.catalog import read_table
from lakecdc.metadata import names
from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run
from tests.lakecdc.maintain.support import run as erase
from tests.on_demand import on_demand
from tests.versions import V3

from .conftest import Shop
from .test_reconcile import compared

COLUMNS = "id, v"

pytestmark = pytest.mark.usefixtures("proven_by_log_alone")


def make_table(shop: Shop, rows: int = 100, **target: Any) -> str:
    """Create a table with ids from 1 up, load it in full, and return its name."""
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql(f"INSERT INTO s.t SELECT i, 'loaded' FROM generate_series(1, {rows}) i")
    name = shop.target("t", **target)
    assert run(shop)[name].outcome == "done"
    return name


def fed(shop: Shop, name: str, **source: Any) -> TableReport:
    """Run once and check that the table equals its source."""
    report = run(shop, **source)[name]
    assert report.outcome == "done", report.reason
    assert not differs(shop, name, COLUMNS)
    return report


def snapshot(shop: Shop, name: str) -> Snapshot:
    """Return the head snapshot."""
    head = shop.lake.table(name).head()
    assert head is not None
    return head


def deleted(shop: Shop, name: str) -> int:
    """Return the keys in the equality deletes of the head."""
    summary = snapshot(shop, name).summary
    return int(summary.get("added-equality-deletes") or 0)


def test_insert_only_batches_leave_no_debt(shop: Shop) -> None:
    name = make_table(shop, partition_by=["bucket(2, id)"])
    for start in (1000, 2000):
        shop.sql(f"INSERT INTO s.t SELECT i, 'new' FROM generate_series({start}, {start + 9}) i")
        report = fed(shop, name)
        assert report.metrics["deletes_left_out"] == 10 and "deletes_kept_because" not in report.metrics
        assert report.metrics["delete_files"] == 0 == deleted(shop, name)
    assert snapshot(shop, name).summary["total-equality-deletes"] == "0"


def test_every_batch_of_a_run_is_staged_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name, moments = make_table(shop), list[str]()
    for key in range(201, 206):
        shop.sql(f"INSERT INTO s.t SELECT 100 * {key} + i, 'new' FROM generate_series(1, 10) i")
    monkeypatch.setattr(failpoints, "reach", moments.append)
    report = fed(shop, name, max_batch_events=10)
    assert report.metrics["commits"] == 5 == moments.count("after_staging")
    assert report.metrics["deletes_left_out"] == 50 and not deleted(shop, name)


def test_only_keys_that_begin_with_an_insert_are_proven(shop: Shop) -> None:
    name = make_table(shop)
    shop.sql("INSERT INTO s.t VALUES (201, 'a'); UPDATE s.t SET v = 'b' WHERE id = 201")
    shop.sql("INSERT INTO s.t VALUES (202, 'a'); DELETE FROM s.t WHERE id = 202; INSERT INTO s.t VALUES (202, 'c')")
    shop.sql("INSERT INTO s.t VALUES (203, 'gone'); DELETE FROM s.t WHERE id = 203")
    report = fed(shop, name)
    assert report.metrics["deletes_left_out"] == 3 and not deleted(shop, name)
    # existed before, whatever has changed meanwhile
    shop.sql("DELETE FROM s.t WHERE id = 1; INSERT INTO s.t VALUES (1, 'again')")
    shop.sql("DELETE FROM s.t WHERE id = 2; INSERT INTO s.t VALUES (2, 'x'); DELETE FROM s.t WHERE id = 2")
    shop.sql("UPDATE s.t SET v = 'u' WHERE id = 3; DELETE FROM s.t WHERE id = 4")
    # a key created by an update is not inserted, even if it existed just before
    shop.sql(
        "UPDATE s.t SET id = 301 WHERE id = 5; UPDATE s.t SET id = 302 WHERE id = 6; DELETE FROM s.t WHERE id = 302"
    )
    shop.sql("DELETE FROM s.t WHERE id = 7; UPDATE s.t SET id = 7 WHERE id = 8; INSERT INTO s.t VALUES (8, 'y')")
    report = fed(shop, name)
    assert report.metrics["deletes_left_out"] == 0 and deleted(shop, name) == 10


@V3
def test_mixed_batches_equal_the_source(shop: Shop, version: int) -> None:
    name, rng, there = (
        make_table(shop, format_version=version, partition_by=["bucket(2, id)"]),
        random.Random(7),
        set(range(1, 101)),
    )
    for batch in range(4):
        inserted, touched = set[int](), set[int]()
        for _ in range(100):
            chance = rng.random()
            if chance < 0.7:
                key = rng.choice([k for k in range(1, 600) if k not in there])
                shop_sql = f"INSERT INTO s.t VALUES ({key}, 'batch {batch}')"
                there.add(key)
                if key not in touched:
                    inserted.add(key)
            else:
                key = rng.choice(sorted(there))
                is_delete = chance > 0.85
                shop_sql = (
                    f"DELETE FROM s.t WHERE id = {key}"
                    if is_delete
                    else f"UPDATE s.t SET v = v || '!' WHERE id = {key}"
                )
                there -= {key} if is_delete else set()
            touched.add(key)
            shop.sql(shop_sql)
        report = fed(shop, name)
        assert report.metrics["deletes_left_out"] == len(inserted) > 40
        assert deleted(shop, name) == len(touched) - len(inserted)


@V3
def test_proven_inserts_need_no_search_for_resolved_deletes(shop: Shop, version: int) -> None:
    name = make_table(shop, deletes="resolved", format_version=version)
    shop.sql("INSERT INTO s.t SELECT i, 'new' FROM generate_series(201, 210) i")
    report = fed(shop, name)
    assert report.metrics["deletes_left_out"] == 10 and "searches" not in report.metrics
    shop.sql("INSERT INTO s.t VALUES (211, 'new'); UPDATE s.t SET v = 'u' WHERE id < 4")
    report = fed(shop, name)
    assert report.metrics["deletes_left_out"] == 1 and report.metrics["positions"] == 3


@pytest.mark.parametrize(
    "moment",
    on_demand(
        ("after_staging", "before_commit", "after_commit", "before_round_release"),
        in_ci=("before_commit", "before_round_release"),
    ),
)
def test_an_interrupted_batch_runs_again(shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    name = make_table(shop, history_table=f"{shop.schema}.log")
    shop.sql("INSERT INTO s.t SELECT i, 'new' FROM generate_series(201, 210) i; UPDATE s.t SET v = 'u' WHERE id < 3")
    act_at(monkeypatch, f"{moment}=raise")
    with contextlib.suppress(RuntimeError):
        assert run(shop)[name].outcome == "failed"
    monkeypatch.delenv(failpoints.VARIABLE)
    again = run(shop)[name]
    assert again.outcome == ("done" if moment in ("after_staging", "before_commit") else "nothing")
    assert not differs(shop, name, COLUMNS)
    assert snapshot(shop, name).summary["total-equality-deletes"] == "2"
    shop.sql("DELETE FROM s.t WHERE id = 201; INSERT INTO s.t VALUES (211, 'new')")
    assert fed(shop, name).metrics["deletes_left_out"] == 1


def test_rows_of_other_writers_end_the_proof(shop: Shop) -> None:
    name = make_table(shop)
    shop.lake.sql(f"INSERT INTO lake.{name} VALUES (500, 'foreign', NULL, NULL)")
    shop.sql("INSERT INTO s.t VALUES (500, 'ours'), (501, 'ours')")
    report = fed(shop, name)
    assert "others may have added rows" in str(report.metrics["deletes_kept_because"])
    assert "deletes_left_out" not in report.metrics and deleted(shop, name) == 2
    # from then on, until the table is loaded again
    shop.sql("INSERT INTO s.t VALUES (502, 'ours')")
    assert "there is no full load" in fed(shop, name).metrics["deletes_kept_because"]
    assert run(shop, options={"reload": [name]})[name].outcome == "done"
    shop.sql("INSERT INTO s.t VALUES (503, 'ours')")
    assert fed(shop, name).metrics["deletes_left_out"] == 1


def test_rows_added_by_others_before_the_commit_end_the_proof(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(shop)
    shop.sql("INSERT INTO s.t VALUES (500, 'ours')")
    moments = list[str]()

    def reach(moment: str) -> None:
        if moment == "before_commit" and moment not in moments:
            shop.lake.sql(f"INSERT INTO lake.{name} VALUES (500, 'foreign', NULL, NULL)")
        moments.append(moment)

    monkeypatch.setattr(failpoints, "reach", reach)
    report = fed(shop, name)
    assert moments.count("after_staging") == 2
    assert "others may have added rows" in report.metrics["deletes_kept_because"]


def test_rows_from_before_the_full_load_prevent_the_proof(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text); INSERT INTO s.t VALUES (1, 'a')")
    name = shop.target("t")
    columns = "id int NOT NULL, v string, _lakecdc_order string, _lakecdc_source_time timestamp"
    shop.lake.sql(f"CREATE TABLE lake.{name} ({columns}) USING iceberg")
    shop.lake.sql(f"INSERT INTO lake.{name} VALUES (2, 'foreign', NULL, NULL)")
    assert run(shop)[name].outcome == "done"
    shop.sql("INSERT INTO s.t VALUES (2, 'ours')")
    assert "there is no full load" in fed(shop, name).metrics["deletes_kept_because"]


def test_rewrites_do_not_end_the_proof(shop: Shop) -> None:
    name = make_table(shop)
    shop.lake.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert snapshot(shop, name).operation == "replace"
    shop.sql("INSERT INTO s.t VALUES (201, 'new')")
    assert fed(shop, name).metrics["deletes_left_out"] == 1


def test_a_column_with_a_default_does_not_end_the_proof(shop: Shop) -> None:
    name = make_table(shop)
    shop.sql("ALTER TABLE s.t ADD COLUMN n int DEFAULT 7; INSERT INTO s.t VALUES (201, 'new')")
    assert fed(shop, name).metrics["deletes_left_out"] == 1 and not differs(shop, name, "id, v, n")


def test_a_truncated_table_has_no_rows(shop: Shop) -> None:
    name = make_table(shop)
    shop.sql("UPDATE s.t SET v = 'u' WHERE id = 2; TRUNCATE s.t; INSERT INTO s.t VALUES (1, 'new'), (2, 'new')")
    fed(shop, name)
    assert not deleted(shop, name)
    shop.sql("INSERT INTO s.t VALUES (3, 'new')")
    assert fed(shop, name).metrics["deletes_left_out"] == 1


def test_some_settings_prevent_the_proof(shop: Shop) -> None:
    settings: dict[str, tuple[dict[str, Any], str]] = {
        "marked": ({"on_truncate": "mark"}, "on_truncate is 'mark'"),
        "stopped": ({"on_truncate": "stop"}, "on_truncate is 'stop'"),
        "filtered": ({"clean": {"filter": "v <> 'hidden'"}}, "clean.filter leaves rows out"),
        "keyed": ({"key": ["v"]}, "the key (v) is not a primary key or NOT NULL and unique in"),
    }
    for table, (target, _) in settings.items():
        shop.sql(f"CREATE TABLE s.{table} (id int PRIMARY KEY, v text); ALTER TABLE s.{table} REPLICA IDENTITY FULL")
        shop.sql(f"CREATE UNIQUE INDEX ON s.{table} (v); INSERT INTO s.{table} VALUES (1, 'a')")
        shop.target(table, **target)
    run(shop)

    def inserted(*row: Any) -> dict[str, TableReport]:
        for table in settings:
            shop.sql(f"INSERT INTO s.{table} VALUES {row}")
        reports = {name.rpartition(".")[2]: report for name, report in run(shop).items()}
        for table, report in reports.items():
            assert report.outcome == "done", report.reason
            rows = shop.lake.duckdb_rows(f"{shop.schema}.{table}", COLUMNS)
            assert sorted(rows) == shop.sql(f"SELECT {COLUMNS} FROM s.{table} ORDER BY id"), table
        return reports

    for table, report in inserted(2, "b").items():
        assert settings[table][1] in report.metrics["deletes_kept_because"], table
        assert deleted(shop, f"{shop.schema}.{table}") == 1, table
    # rows fed this way stay unproven after the setting is removed
    del settings["keyed"]
    shop.targets[:] = [{"table": f"{shop.schema}.{table}"} for table in settings]
    for table, report in inserted(3, "c").items():
        assert "there is no full load" in report.metrics["deletes_kept_because"], table


@pytest.mark.parametrize(
    ("index", "unique"),
    [
        ("CREATE UNIQUE INDEX ON s.t (v)", True),
        ("CREATE UNIQUE INDEX ON s.t (v) INCLUDE (id)", True),
        ("CREATE UNIQUE INDEX ON s.t (w)", False),
        ("CREATE UNIQUE INDEX ON s.t (v) WHERE id > 0", False),
        ("CREATE UNIQUE INDEX ON s.t (lower(v))", False),
        ("CREATE INDEX ON s.t (v)", False),
        ("ALTER TABLE s.t ADD UNIQUE (v) DEFERRABLE", False),
        ("CREATE UNIQUE INDEX ON s.t (v, id)", False),
    ],
)
def test_unique_indexes_over_the_key_are_recognized(shop: Shop, index: str, unique: bool) -> None:
    shop.sql("CREATE TABLE s.t (id int NOT NULL, v text NOT NULL, w text); ALTER TABLE s.t REPLICA IDENTITY FULL")
    shop.sql(index)
    target = Target(f"{shop.schema}.t", ("v", "w"))
    with psycopg.connect(shop.server.dsn) as session:
        assert read_table(session, target).unique is unique


def test_a_row_with_a_quarantined_update_may_still_exist(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql("INSERT INTO s.t SELECT i, i FROM generate_series(1, 20) i")
    name = shop.target("t", columns={"v": "int"})
    run(shop)
    shop.sql(
        "UPDATE s.t SET id = 101, v = 'odd' WHERE id = 1; INSERT INTO s.t SELECT i, i FROM generate_series(30, 60) i"
    )
    report = run(shop)[name]
    assert report.metrics["quarantined"] == 1
    assert "in quarantine" in report.metrics["deletes_kept_because"]
    shop.sql("INSERT INTO s.t VALUES (1, '2')")
    report = run(shop)[name]
    assert "there is no full load" in report.metrics["deletes_kept_because"]
    assert [row for row in shop.lake.duckdb_rows(name, COLUMNS) if row[0] == 1] == [(1, 2)]


def test_inserts_are_proven_beside_incomplete_updates(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text, n int)")
    shop.sql("ALTER TABLE s.t ALTER v SET STORAGE EXTERNAL")
    shop.sql("INSERT INTO s.t SELECT i, repeat(i::text, 3000), 0 FROM generate_series(1, 50) i")
    name = shop.target("t")
    run(shop)
    shop.sql("UPDATE s.t SET n = 1 WHERE id < 11; INSERT INTO s.t SELECT i, 'new', 2 FROM generate_series(101, 105) i")
    shop.sql("INSERT INTO s.t VALUES (106, repeat('x', 9000), 3); UPDATE s.t SET n = 4 WHERE id = 106")
    report = fed(shop, name)
    assert report.metrics["completion_lookups"] == 10 and not differs(shop, name, "id, v, n")
    assert report.metrics["deletes_left_out"] == 6 and deleted(shop, name) == 10


def test_mode_auto_considers_proven_inserts(shop: Shop) -> None:
    name = make_table(shop, mode="auto")
    shop.sql("UPDATE s.t SET v = 'u' WHERE id < 60")
    assert fed(shop, name).metrics["mode_chosen"] == "merge"
    shop.sql("INSERT INTO s.t VALUES (201, 'new')")
    report = fed(shop, name)
    assert report.metrics["mode_chosen"] == "upsert" and report.metrics["deletes_left_out"] == 1
    assert names.ROWS_BELOW in snapshot(shop, name).summary


def test_repaired_rows_may_be_newer_than_the_log(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(shop)
    shop.lake.sql(f"DELETE FROM lake.{name} WHERE id = 5")
    monkeypatch.setattr("lakecdc.reconcile.repair.sleep", lambda _seconds: run(shop))
    assert compared(shop, repair=True, max_wait=600.0).metrics["repaired"] == 1
    shop.sql("INSERT INTO s.t VALUES (202, 'after')")
    report = fed(shop, name)
    assert "the end of the full load" in report.metrics["deletes_kept_because"] and deleted(shop, name) == 1
    shop.sql("INSERT INTO s.t VALUES (203, 'after')")
    assert fed(shop, name).metrics["deletes_left_out"] == 1


def test_an_erasure_ends_the_proof(shop: Shop) -> None:
    name = make_table(shop)
    shop.sql("DELETE FROM s.t WHERE id = 5")
    fed(shop, name)
    shop.lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT 5 AS id")
    assert erase(shop.lake, erase_rows, name, keys_table=f"{name}_keys").outcome == "done"
    assert names.POSITIONS in snapshot(shop, name).summary
    shop.sql("INSERT INTO s.t VALUES (201, 'new')")
    assert "there is no full load" in fed(shop, name).metrics["deletes_kept_because"]
