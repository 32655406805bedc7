"""A key column renamed at the source is the same key, even if key columns swap their names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, field_ids, run

from .conftest import Shop, both
from .test_start import setting

pytestmark = pytest.mark.services


def make(shop: Shop, **target: Any) -> str:
    """Create a loaded table with a key of two columns."""
    shop.sql("CREATE TABLE s.t (a int, b int, c int NOT NULL, v varchar(9), PRIMARY KEY (b, a))")
    shop.sql("INSERT INTO s.t SELECT seq, seq + 10, seq + 20, 'v' FROM seq_1_to_8")
    name = shop.target("t", **target)
    assert run(shop)[name].outcome == "done"
    return name


@both
@pytest.mark.parametrize(
    ("metadata", "batch_events"),
    [("FULL", 500_000), *(pytest.param(*p, marks=pytest.mark.soak) for p in [("FULL", 1), ("MINIMAL", 500_000)])],
)
def test_renamed_key_columns_are_the_same_key(shop: Shop, metadata: str, batch_events: int) -> None:
    with setting(shop, "binlog_row_metadata", metadata, "FULL"):
        name = make(shop, partition_by=["bucket(2, b)", "bucket(2, a)"])
        before = field_ids(shop, name)
        shop.sql(
            "UPDATE s.t SET a = 101 WHERE a = 1",
            "ALTER TABLE s.t RENAME COLUMN a TO x",
            "UPDATE s.t SET x = 102 WHERE x = 2",
            "DELETE FROM s.t WHERE x = 3",
            # within the key, so rows look the same
            "ALTER TABLE s.t RENAME COLUMN x TO b, RENAME COLUMN b TO x",
            "UPDATE s.t SET b = 104 WHERE b = 4",
            "DELETE FROM s.t WHERE x = 15",
            # a key column and another one
            "ALTER TABLE s.t RENAME COLUMN x TO c, RENAME COLUMN c TO x",
            "UPDATE s.t SET c = 106 WHERE b = 6",
            "UPDATE s.t SET x = 107 WHERE b = 7",
            "DELETE FROM s.t WHERE c = 18",
            "INSERT INTO s.t (b, c, x, v) VALUES (9, 19, 29, 'new')",
        )
        report = run(shop, max_batch_events=batch_events)[name]
        assert report.outcome == "done", report.reason
        assert not differs(shop, name, "b, c, x, v")
        after, table = field_ids(shop, name), shop.lake.table(name)
        assert (after["b"], after["c"], after["x"]) == (before["a"], before["b"], before["c"])
        assert {*table.identifier_columns} == {"b", "c"}
        assert {n for n in after if f"write.metadata.metrics.column.{n}" in table.properties} == {"b", "c"}
        shop.sql("UPDATE s.t SET b = 201 WHERE b = 101", "DELETE FROM s.t WHERE c = 19")
        run(shop)
        assert not differs(shop, name, "b, c, x, v")
        assert run(shop)[name].outcome == "nothing"


@pytest.mark.parametrize("mode", ["merge", pytest.param("upsert", marks=pytest.mark.soak)])
def test_an_interrupted_run_renames_once(shop: Shop, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    history = f"{shop.schema}.t_history"
    name = make(shop, mode=mode, history_table=history)
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET a = 101 WHERE a = 1", "DELETE FROM s.t WHERE a = 2")
    shop.sql("ALTER TABLE s.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    shop.sql("UPDATE s.t SET b = 103 WHERE b = 3", "DELETE FROM s.t WHERE b = 4")
    for moment in ("after_rename", "history_before_staging", "after_side_tables"):
        act_at(monkeypatch, f"{moment}=raise")
        assert run(shop)[name].outcome == "failed"
        assert field_ids(shop, name)["b"] == before["a"]
    monkeypatch.delenv(failpoints.VARIABLE)
    assert run(shop, max_batch_events=1)[name].outcome == "done"
    assert not differs(shop, name, "a, b, c, v")
    assert field_ids(shop, name) == {"b": before["a"], "a": before["b"], "c": before["c"], "v": before["v"]}
    counts = Counter(shop.lake.duckdb_rows(history, "_lakecdc_op, b, a"))
    assert [counts[("u", 101, 11)], counts[("d", 2, 12)], counts[("u", 103, 13)], counts[("d", 4, 14)]] == [1] * 4


@pytest.mark.soak
def test_present_names_identify_the_key_in_the_log(shop: Shop) -> None:
    name = make(shop, key=["b", "a"])
    alone = shop.target("t_log", source_table=f"{shop.schema}.u", mode="history")
    shop.sql("CREATE TABLE s.u (id int PRIMARY KEY, v int)", "INSERT INTO s.u VALUES (1, 1), (2, 2)")
    run(shop)
    before, own = field_ids(shop, name), field_ids(shop, alone)
    shop.sql("ALTER TABLE s.t RENAME COLUMN a TO y", "ALTER TABLE s.t RENAME COLUMN y TO z")
    shop.sql("ALTER TABLE s.u CHANGE id nr int", "UPDATE s.u SET nr = 12 WHERE nr = 2", "DELETE FROM s.u WHERE nr = 1")
    head = shop.lake.table(name).head()
    reports = run(shop)
    assert "no column 'a', which key names" in str(reports[name].reason), reports[name].reason
    assert shop.lake.table(name).head() == head and field_ids(shop, name) == before
    assert reports[alone].outcome == "done" and field_ids(shop, alone)["nr"] == own["id"]
    counts = Counter(shop.lake.duckdb_rows(alone, "_lakecdc_op, nr, _lakecdc_old_key"))
    assert counts[("u", 12, '{"nr":2}')] == counts[("d", 1, None)] == 1
    shop.targets[0]["key"] = ["b", "z"]
    shop.sql("UPDATE s.t SET z = 101 WHERE z = 1", "DELETE FROM s.t WHERE z = 2")
    # only the last batch has the server's present name
    assert run(shop, max_batch_events=1)[name].outcome == "done"
    assert not differs(shop, name, "z, b, c, v") and field_ids(shop, name)["z"] == before["a"]
