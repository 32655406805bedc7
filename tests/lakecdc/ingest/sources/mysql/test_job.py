"""The ingest job from MariaDB and MySQL into Iceberg tables, read back by another engine."""

from __future__ import annotations

import random

import pytest

from lakecdc.ingest.job import ingest
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run as run_job
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop, only_mysql

pytestmark = pytest.mark.services


def test_a_key_column_without_a_value_is_named(shop: Shop) -> None:
    shop.sql(
        "SET sql_mode = ''",
        "CREATE TABLE s.zero (id int, d date, v int, PRIMARY KEY (id, d))",
        "INSERT INTO s.zero VALUES (1, '0000-00-00', 1), (1, '2024-00-00', 2), (1, '2024-01-01', 3)",
        *[f"CREATE TABLE s.{name} (id int, code varchar(5), v int, UNIQUE KEY (code))" for name in ("none", "later")],
        "INSERT INTO s.none VALUES (1, NULL, 1), (2, NULL, 2), (3, 'c', 3)",
        "INSERT INTO s.later VALUES (3, 'c', 3)",
    )
    zero, none, later = shop.target("zero"), shop.target("none", key=["code"]), shop.target("later", key=["code"])
    reports = run(shop)
    assert reports[later].outcome == "done"
    shop.sql("INSERT INTO s.later VALUES (4, NULL, 4)")
    reports[later] = run(shop)[later]
    # a row without a key value is quarantined; in a load these are too many
    for name, column in {zero: "d (date)", none: "code (string)"}.items():
        report = reports[name]
        assert (report.outcome, report.failure_class) == ("failed", "bad input"), report
        assert column in str(report.reason)
    assert (reports[later].outcome, reports[later].metrics["quarantined"]) == ("done", 1)


class History:
    """Random statements on two tables: ``flat`` with a simple key, ``deep`` with a composite one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = ["id", "v", "amount", "note"]
        self.added = 0

    def statements(self, count: int) -> list[str]:
        """Return some statements, some of them in transactions."""
        statements = []
        for _ in range(count):
            few = [self.one() for _ in range(self.random.randrange(1, 4))]
            statements += ["BEGIN", *few, self.random.choice(["COMMIT", "COMMIT", "ROLLBACK"])] if len(few) > 1 else few
            if self.random.random() < 0.03:
                statements.append(self.random.choice(["TRUNCATE TABLE s.flat", "TRUNCATE s.deep", "FLUSH BINARY LOGS"]))
            if self.random.random() < 0.03 and self.added < 3:
                self.added += 1
                statements.append(f"ALTER TABLE s.flat ADD COLUMN x{self.added} int DEFAULT {self.added}")
                self.columns.append(f"x{self.added}")
        return statements

    def one(self) -> str:
        """Return one statement; IGNORE skips those that violate a key."""
        key, other = self.random.randrange(30), self.random.randrange(30)
        value = self.random.randrange(1000)
        return self.random.choice(
            [
                f"INSERT IGNORE INTO s.flat (id, v, amount) VALUES ({key}, 'v{value}', {value} / 8)",
                f"REPLACE INTO s.flat (id, v, note) VALUES ({key}, 'r{value}', repeat('ä', {value}))",
                f"INSERT INTO s.flat (id, v) VALUES ({key}, 'o') ON DUPLICATE KEY UPDATE v = 'odku{value}'",
                f"UPDATE s.flat SET amount = {value} / 4 WHERE id % 7 = {key % 7}",
                f"UPDATE IGNORE s.flat SET id = {other} WHERE id = {key}",
                f"DELETE FROM s.flat WHERE id = {key}",
                f"REPLACE INTO s.deep VALUES ({key}, 'k{other % 3}', {value})",
                f"UPDATE IGNORE s.deep SET a = {other}, b = 'k{value % 3}' WHERE a = {key}",
                f"DELETE FROM s.deep WHERE a = {key} AND b = 'k1'",
            ]
        )


@pytest.mark.parametrize(("seed", "version"), [(2, 3), pytest.param(1, 2, marks=pytest.mark.soak)])
def test_random_histories_equal_their_source_after_every_run(shop: Shop, seed: int, version: int) -> None:
    history = History(seed)
    shop.sql("CREATE TABLE s.flat (id bigint PRIMARY KEY, v varchar(40), amount decimal(12,3), note text)")
    shop.sql("CREATE TABLE s.deep (a int, b varchar(9), v int, PRIMARY KEY (b, a))")
    flat = shop.target("flat", partition_by=["bucket(4, id)"], format_version=version)
    deep = shop.target("deep", format_version=version)
    shop.sql(*history.statements(25))
    for batch_events in (500_000, 20, 500_000):
        reports = run(shop, max_batch_events=batch_events, chunk_rows=7)
        assert {report.outcome for report in reports.values()} <= {"done", "nothing"}, reports
        assert not differs(shop, flat, ", ".join(history.columns))
        assert not differs(shop, deep, "a, b, v")
        shop.sql(*history.statements(40))
    run(shop)
    last = run(shop)
    assert {report.outcome for report in last.values()} == {"nothing"}
    assert last[flat].metrics["read_through"] == last[deep].metrics["read_through"] is not None
    assert not differs(shop, flat, ", ".join(history.columns))


@only_mysql
@pytest.mark.parametrize(
    "moments", [("after_chunks", "after_commit"), pytest.param(("after_staging",), marks=pytest.mark.soak)]
)
def test_random_histories_of_mysql_survive_failures(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, moments: tuple[str, ...]
) -> None:
    history = History(3)
    shop.sql("CREATE TABLE s.flat (id bigint PRIMARY KEY, v varchar(40), amount decimal(12,3), note text)")
    shop.sql("CREATE TABLE s.deep (a int, b varchar(9), v int, PRIMARY KEY (b, a))")
    flat, deep = shop.target("flat"), shop.target("deep")
    for moment in moments:
        shop.sql(*history.statements(40))
        act_at(monkeypatch, f"{moment}=raise")
        report = run_job(shop.spec(chunk_rows=7), ingest)
        assert f"fail point {moment}" in f"{report.error} {[table.reason for table in report.tables]}"
        monkeypatch.delenv(failpoints.VARIABLE)
        shop.sql(*history.statements(20))
        assert {report.outcome for report in run(shop, max_batch_events=30).values()} <= {"done", "nothing"}
        assert not differs(shop, flat, ", ".join(history.columns)) and not differs(shop, deep, "a, b, v")
    failpoints._passes.clear()


def test_one_big_transaction_is_applied_and_its_rollback_is_not(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.big (id int PRIMARY KEY, v varchar(20), n int)")
    name = shop.target("big")
    run(shop)
    shop.sql(
        "BEGIN", "INSERT INTO s.big SELECT seq, concat('v', seq), 0 FROM seq_1_to_50000",
        "UPDATE s.big SET n = n + 1 WHERE id % 2 = 0", "DELETE FROM s.big WHERE id % 5 = 0", "COMMIT",
        "BEGIN", "DELETE FROM s.big", "ROLLBACK",
    )  # fmt: skip
    report = run(shop, max_batch_events=1000)[name]
    assert report.outcome == "done" and report.metrics["events_c"] == 50_000, report
    assert shop.lake.duckdb_rows(name, "count(*), sum(id), sum(n)") == shop.sql(
        "SELECT count(*), sum(id), sum(n) FROM s.big"
    )


def test_a_table_without_a_key_is_appended_exactly_once(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.visits (seen datetime(3), who varchar(20))")
    shop.sql("INSERT INTO s.visits SELECT '2024-01-01' + INTERVAL seq SECOND, 'x' FROM seq_1_to_100")
    name = shop.target("visits", mode="append")
    assert run(shop)[name].outcome == "done"
    shop.sql("INSERT INTO s.visits VALUES (now(3), 'y'), (now(3), 'y')")
    assert run(shop)[name].outcome == "done"
    assert not differs(shop, name, "seen, who")
    shop.sql("DELETE FROM s.visits WHERE who = 'x'")
    report = run(shop)[name]
    assert report.outcome == "failed" and "append" in str(report.reason)


def test_a_history_without_a_key_exports_whole_rows(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.visits (n int, who varchar(20))", "INSERT INTO s.visits VALUES (1, 'x'), (2, 'y')")
    name = shop.target("visits", mode="history")
    run(shop)
    shop.sql("UPDATE s.visits SET n = 3 WHERE who = 'x'", "DELETE FROM s.visits WHERE who = 'y'")
    assert run(shop)[name].outcome == "done"
    assert sorted(shop.lake.duckdb_rows(name, "_lakecdc_op, n, who"), key=str) == [
        ("d", 2, "y"), ("r", 1, "x"), ("r", 2, "y"), ("u", 3, "x"),
    ]  # fmt: skip


@pytest.mark.soak
def test_only_the_table_with_unreadable_metadata_fails(shop: Shop) -> None:
    names = []
    for table in ("good", "bad"):
        shop.sql(f"CREATE TABLE s.{table} (id int PRIMARY KEY, v int)", f"INSERT INTO s.{table} VALUES (1, 1)")
        names.append(shop.target(table))
    run(shop)
    shop.sql("UPDATE s.good SET v = 2", "UPDATE s.bad SET v = 2")
    restore = shop.lake.break_metadata(names[1])
    reports = run(shop)
    assert [reports[name].outcome for name in names] == ["done", "failed"], reports
    assert "Cannot load the table" in str(reports[names[1]].reason)
    restore()
    assert [run(shop)[name].outcome for name in names[1:]] == ["done"]
    assert not any(differs(shop, name, "id, v") for name in names)
