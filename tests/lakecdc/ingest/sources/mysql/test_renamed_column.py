"""A column renamed at the source keeps its field id, with events from before and after, in one batch and in several."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from lakecdc.ingest.column_numbers import renamed
from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, field_ids, run

from .conftest import Shop
from .test_start import setting

pytestmark = pytest.mark.services


def make(shop: Shop, columns: str = "a int, b int, c varchar(20)", **target: Any) -> str:
    """Create a loaded table with five rows."""
    shop.sql(f"CREATE TABLE s.t (id int PRIMARY KEY, {columns})")
    shop.sql(f"INSERT INTO s.t SELECT seq{', seq' * (columns.count(',') + 1)} FROM seq_1_to_5")
    name = shop.target("t", **target)
    assert run(shop)[name].outcome == "done"
    return name


@pytest.mark.parametrize(
    ("metadata", "batch_events"),
    [
        ("FULL", 500_000),
        ("NO_LOG", 1),
        *(pytest.param(*p, marks=pytest.mark.soak) for p in [("FULL", 1), ("NO_LOG", 99)]),
    ],
)
def test_a_renamed_column_is_the_same_column(shop: Shop, metadata: str, batch_events: int) -> None:
    with setting(shop, "binlog_row_metadata", metadata, "FULL"):
        name = make(shop)
        before = field_ids(shop, name)
        shop.sql(
            "UPDATE s.t SET a = 10 WHERE id = 1",
            "ALTER TABLE s.t RENAME COLUMN a TO `be``tween`",
            "UPDATE s.t SET `be``tween` = 20, b = 21 WHERE id = 2",
            "ALTER TABLE s.t CHANGE `be``tween` x int, ALGORITHM=INPLACE",
            # two columns swap their names, which the rows do not show
            "ALTER TABLE s.t RENAME COLUMN x TO b, CHANGE COLUMN B x int COMMENT 'once b, RENAME COLUMN c TO d'",
            "INSERT INTO s.t (id, b, x, c) VALUES (6, 60, 61, 'six')",
            "DELETE FROM s.t WHERE id = 4",
            "ALTER TABLE s.t RENAME COLUMN c TO text",
        )
        report = run(shop, max_batch_events=batch_events)[name]
        assert report.outcome == "done", report.reason
        after = field_ids(shop, name)
        assert (after["b"], after["x"], after["text"]) == (before["a"], before["b"], before["c"])
        assert not differs(shop, name, "id, b, x, text")
        assert run(shop)[name].outcome == "nothing"


@pytest.mark.soak
def test_renames_are_followed_without_row_changes(shop: Shop) -> None:
    name = make(shop)
    before = field_ids(shop, name)
    shop.sql("ALTER TABLE s.t CHANGE a b int, CHANGE b a int")
    # the server is ahead of the log: the rows of the first runs do not know the last name
    shop.sql("UPDATE s.t SET a = 20 WHERE id = 2", "ALTER TABLE s.t RENAME COLUMN a TO z")
    for _ in range(3):
        run(shop, max_batch_events=1)
    after = field_ids(shop, name)
    assert (after["b"], after["z"]) == (before["a"], before["b"]) and len(after) == len(before)
    shop.sql("ALTER TABLE s.t RENAME COLUMN z TO b, RENAME COLUMN b TO z")
    assert run(shop)[name].outcome == "nothing"
    shop.sql("INSERT INTO s.t (id, b) VALUES (7, 70)")
    run(shop)
    assert not differs(shop, name, "id, b, z, c")
    assert field_ids(shop, name)["b"] == before["b"]


def test_a_new_column_may_reuse_an_old_name(shop: Shop) -> None:
    name = make(shop)
    before = field_ids(shop, name)
    shop.sql(
        "ALTER TABLE s.t RENAME COLUMN a TO old, ADD a decimal(6,2) DEFAULT 1.5 AFTER id",
        "INSERT INTO s.t (id, a, old) VALUES (6, 2.5, 6)",
        "ALTER TABLE s.t RENAME COLUMN a TO price",
        # and wider types meanwhile
        "ALTER TABLE s.t MODIFY COLUMN b bigint COMMENT 'wide', MODIFY c longtext",
        "INSERT INTO s.t (id, old, price, b, c) VALUES (7, 7, 1.25, 5000000000, 'c')",
    )
    report = run(shop)[name]
    assert report.outcome == "done", report.reason
    assert not differs(shop, name, "id, old, price, b")
    after = field_ids(shop, name)
    assert after["old"] == before["a"] and after["price"] not in before.values()
    # the server does not report dropped zeros
    shop.sql("UPDATE s.t SET c = '007'", "ALTER TABLE s.t MODIFY c int")
    report = run(shop)[name]
    assert report.failure_class == "bad input" and "it is int now and was string" in str(report.reason), report


@pytest.mark.soak
def test_an_interrupted_run_renames_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make(shop, history_table=f"{shop.schema}.t_history")
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET a = 10 WHERE id = 1", "ALTER TABLE s.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    shop.sql("UPDATE s.t SET a = 20 WHERE id = 2", "ALTER TABLE s.t ADD d int", "UPDATE s.t SET d = 3 WHERE id = 3")
    for moment in ("after_rename", "history_before_staging", "after_side_tables"):
        act_at(monkeypatch, f"{moment}=raise")
        assert run(shop)[name].outcome == "failed"
        assert field_ids(shop, name)["b"] == before["a"]
    monkeypatch.delenv(failpoints.VARIABLE)
    shop.sql("ALTER TABLE s.t RENAME COLUMN c TO e")
    # the table is ahead of its position, so a smaller batch must reach the end of the interrupted one
    assert run(shop, max_batch_events=1)[name].outcome == "done"
    assert not differs(shop, name, "id, a, b, d, e")
    after = field_ids(shop, name)
    assert (after["a"], after["b"], after["e"]) == (before["b"], before["a"], before["c"])
    history_rows = shop.lake.duckdb_rows(f"{name}_history", "id, a, b, d")
    expected = [(i, i, i, None) for i in (1, 2, 3)] + [(1, 1, 10, None), (2, 20, 2, None), (3, 3, 3, 3)]
    assert Counter(row for row in history_rows if row[0] < 4) == Counter(expected)


def test_an_alter_logged_twice_counts_once(shop: Shop) -> None:
    name = make(shop)
    swap = "ALTER TABLE s.t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    shop.sql("SET SESSION binlog_alter_two_phase = ON", swap, "UPDATE s.t SET a = 7 WHERE id = 1")
    assert run(shop)[name].outcome == "done"
    assert not differs(shop, name, "id, a, b, c")


@pytest.mark.soak
def test_an_excluded_column_is_excluded_under_every_name(shop: Shop) -> None:
    name = make(shop, exclude_columns=["a"])
    shop.sql("UPDATE s.t SET a = 10, b = 11 WHERE id = 1", "ALTER TABLE s.t RENAME COLUMN a TO secret")
    shop.sql("UPDATE s.t SET b = 12 WHERE id = 2")
    assert "has no column 'a', which exclude_columns names" in str(run(shop)[name].reason)
    shop.targets[0]["exclude_columns"] = ["secret"]
    assert run(shop, max_batch_events=1)[name].outcome == "done"
    assert set(field_ids(shop, name)) == {"id", "b", "c"}
    assert not differs(shop, name, "id, b, c")


def test_renames_that_cannot_be_followed_stop_the_table(shop: Shop) -> None:
    altered = [
        (["DROP PRIMARY KEY, ADD PRIMARY KEY (a)"], r"has another key now \(a\)"),
        (["ADD k int NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, k)"], r"has another key now \(id, k\)"),
        (["DROP c", "RENAME COLUMN a TO c"], "'a' to 'c', the name of a column in the table"),
        (["RENAME COLUMN a TO x PARTITION BY HASH (id)"], "cannot be parsed reliably"),
        (["ADD x int DEFAULT 7", "RENAME COLUMN x TO y"], "'x' was added .* its default is unknown"),
    ]
    names = [shop.target(f"t{number}") for number in range(len(altered))]
    for name in names:
        shop.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, a int, b int, c varchar(20))")
        shop.sql(f"INSERT INTO {name} SELECT seq, seq, seq, seq FROM seq_1_to_5")
    assert {report.outcome for report in run(shop).values()} == {"done"}
    for name, (statements, _pattern) in zip(names, altered, strict=True):
        for number, statement in enumerate(statements):
            shop.sql(f"ALTER TABLE {name} {statement}", f"UPDATE {name} SET b = {number + 100} WHERE b > 3")
    reports = run(shop, max_batch_events=1)
    for name, (_statements, pattern) in zip(names, altered, strict=True):
        table_report = reports[name]
        matches = re.search(f"{pattern}.*a full load is needed", str(table_report.reason))
        assert table_report.outcome == "failed" and matches, table_report.reason


def test_a_column_that_is_renamed_while_it_is_loaded_stops_the_table(shop: Shop) -> None:
    name = make(shop)
    shop.lake.sql(f"DROP TABLE lake.{name}")
    source = shop.open()
    source.start({name: None}, {})
    rounds = source.rounds()
    for batch in next(rounds):
        # the chunks may have read either name
        shop.sql("ALTER TABLE s.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
        source.applied(batch.target.table, batch.position)
    for batch in next(rounds):
        source.applied(batch.target.table, batch.position)
    assert next(rounds) == [] and "renamed columns while it was being loaded" in str(source.refused[name])
    source.close()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_random_renames_equal_their_source(shop: Shop, metadata: str, seed: int) -> None:
    rng = random.Random(seed)
    with setting(shop, "binlog_row_metadata", metadata, "FULL"):
        name = make(shop, "a int, b int, c int")
        ids = field_ids(shop, name)
        names = {column: column for column in ids}
        for lap in range(5):
            for step in range(lap * 12, lap * 12 + 12):
                renamed = {of: f"{of}{step}" for of in rng.sample([*ids], rng.randrange(4))}
                if rng.random() < 0.5:
                    one, other = rng.sample([*ids], 2)
                    renamed = {one: names[other], other: names[one]}
                pairs = [(names[of], new) for of, new in renamed.items()]
                if pairs and rng.random() < 0.4:
                    parts = [rng.choice([f"RENAME COLUMN {a} TO {b}", f"CHANGE {a} {b} int"]) for a, b in pairs]
                    shop.sql(f"ALTER TABLE s.t {', '.join(parts)}")
                    names |= renamed
                column, key, row = names[rng.choice("abc")], names["id"], rng.randrange(1, 9)
                shop.sql(f"UPDATE s.t SET {column} = {rng.randrange(999)} WHERE {key} = {row}")
                change = rng.choice([f"UPDATE IGNORE s.t SET {key} = {rng.randrange(9)}", "DELETE FROM s.t"])
                shop.sql(
                    f"{change} WHERE {key} = {row}" if step % 3 else f"INSERT IGNORE INTO s.t ({key}) VALUES ({row})"
                )
            report = run(shop, max_batch_events=rng.choice([1, 3, 500_000]))[name]
            assert report.outcome in ("done", "nothing"), report.reason
            assert not differs(shop, name, ", ".join(names.values()))
        assert {of: field_ids(shop, name)[column] for of, column in names.items()} == ids


def test_swapped_names_are_followed_if_the_log_records_them() -> None:
    assert renamed({"a": 1, "b": 2}, {"a": 2, "b": 1}, swapped=True) == {"a": "b", "b": "a"}
    assert renamed({"a": 1, "b": 2}, {"b": 1, "c": 2}, swapped=True) == {"a": "b", "b": "c"}
