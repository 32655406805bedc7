"""A key column renamed at the source is the same key, and events before and after the rename match its rows."""

from __future__ import annotations

from collections import Counter

import pytest

from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, field_ids, run

from .conftest import Shop

DOC = "repeat('x', 5000)"
USED_NAME = "the name of a column in the table"


def make(shop: Shop, constraint: str = "PRIMARY KEY (id)", **target: object) -> str:
    """Create a loaded table with eight rows; the log omits an unchanged ``doc``."""
    shop.sql(f"CREATE TABLE s.t (v text, id int, doc text, line int, {constraint})")
    identity = "DEFAULT" if "PRIMARY" in constraint else "FULL"
    shop.sql(f"ALTER TABLE s.t ALTER doc SET STORAGE EXTERNAL; ALTER TABLE s.t REPLICA IDENTITY {identity}")
    shop.sql(f"INSERT INTO s.t SELECT 'v' || i, i, {DOC} || i, i FROM generate_series(1, 8) i")
    name = shop.target("t", **target)
    assert run(shop)[name].outcome == "done"
    return name


@pytest.mark.parametrize("mode", ["upsert", pytest.param("merge", marks=pytest.mark.soak)])
def test_a_renamed_key_column_is_the_same_key(shop: Shop, mode: str) -> None:
    history = f"{shop.schema}.t_history"
    name = make(shop, mode=mode, partition_by=["bucket(2, id)"], history_table=history)
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET id = 11 WHERE id = 1; DELETE FROM s.t WHERE id = 2; UPDATE s.t SET v = 'w' WHERE id = 3")
    shop.sql("ALTER TABLE s.t RENAME id TO between")
    # a key changes under a name that neither table nor catalog will have
    shop.sql("UPDATE s.t SET between = 13 WHERE between = 3; UPDATE s.t SET v = 'b' WHERE between = 8")
    shop.sql("ALTER TABLE s.t RENAME between TO nr")
    shop.sql("UPDATE s.t SET nr = 14 WHERE nr = 4; DELETE FROM s.t WHERE nr = 5; UPDATE s.t SET v = 'n' WHERE nr = 6")
    report = run(shop)[name]
    assert report.outcome == "done", report.reason
    assert report.metrics["schema_changes"] == ["renamed id to nr"]
    assert not differs(shop, name, "v, nr, doc, line")
    table = shop.lake.table(name)
    assert field_ids(shop, name)["nr"] == before["id"] and table.identifier_columns == ["nr"]
    assert table.properties["write.metadata.metrics.column.nr"] == "full"
    assert "write.metadata.metrics.column.id" not in table.properties
    counts = Counter(shop.lake.duckdb_rows(history, "_lakecdc_op, nr, _lakecdc_old_key"))
    assert counts[("d", 2, None)] == counts[("u", 13, '{"nr":3}')] == counts[("u", 14, '{"nr":4}')] == 1
    # only now is the table completed under a name of its newest snapshot
    shop.sql("UPDATE s.t SET nr = 15 WHERE nr = 7; DELETE FROM s.t WHERE nr = 14")
    run(shop)
    assert not differs(shop, name, "v, nr, doc, line")
    assert run(shop)[name].outcome == "nothing"


@pytest.mark.parametrize("batch_events", [1, pytest.param(500_000, marks=pytest.mark.soak)])
def test_events_from_before_a_rename_may_come_after_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, batch_events: int
) -> None:
    name = make(shop, partition_by=["bucket(2, id)"])
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET v = 'w' WHERE id = 1")
    shop.sql("UPDATE s.t SET id = 12 WHERE id = 2; DELETE FROM s.t WHERE id = 3")
    shop.sql("ALTER TABLE s.t RENAME id TO nr; UPDATE s.t SET nr = 13 WHERE nr = 12; DELETE FROM s.t WHERE nr = 4")
    for moment in ("after_rename", "before_commit"):
        act_at(monkeypatch, f"{moment}=raise")
        assert run(shop)[name].outcome == "failed"
        assert field_ids(shop, name)["nr"] == before["id"]
    # the first run left a view on a column that no longer exists
    assert shop.lake.spark.table(f"lake.{name}_view").columns == ["v", "nr", "doc", "line"]
    monkeypatch.delenv(failpoints.VARIABLE)
    # the table is already renamed when batches from before the rename arrive
    assert run(shop, max_batch_events=batch_events)[name].outcome == "done"
    assert not differs(shop, name, "v, nr, doc, line")
    table = shop.lake.table(name)
    assert field_ids(shop, name)["nr"] == before["id"] and table.identifier_columns == ["nr"]
    assert len(field_ids(shop, name)) == len(before)


@pytest.mark.soak
def test_the_targets_key_uses_the_present_name(shop: Shop) -> None:
    name = make(shop, "UNIQUE (line)", key=["line", "id"])
    before = field_ids(shop, name)
    shop.sql("UPDATE s.t SET line = 11 WHERE line = 1; UPDATE s.t SET id = 12 WHERE id = 2")
    shop.sql("ALTER TABLE s.t RENAME line TO place; ALTER TABLE s.t RENAME id TO nr; ALTER TABLE s.t ADD line text")
    head = shop.lake.table(name).head()
    failed = run(shop)[name]
    assert failed.outcome == "failed" and "no column 'id', which key names" in str(failed.reason), failed.reason
    assert shop.lake.table(name).head() == head and field_ids(shop, name) == before
    shop.targets[0]["key"] = ["place", "nr"]
    shop.sql("DELETE FROM s.t WHERE place = 3; UPDATE s.t SET place = 14 WHERE nr = 4")
    assert run(shop)[name].outcome == "done"
    assert not differs(shop, name, "v, nr, doc, place, line")
    after = field_ids(shop, name)
    assert (after["place"], after["nr"]) == (before["line"], before["id"]) and after["line"] not in before.values()
    assert {*shop.lake.table(name).identifier_columns} == {"place", "nr"}


def test_key_renames_that_cannot_be_followed_stop_their_table(shop: Shop) -> None:
    changes = {
        "RENAME id TO x; RENAME line TO id; RENAME x TO line": USED_NAME,
        "RENAME line TO x; RENAME id TO line": USED_NAME,
        "RENAME line TO x; RENAME v TO line; RENAME x TO v": USED_NAME,
        "DROP CONSTRAINT {}_pkey, ADD PRIMARY KEY (line)": "has another key now (line)",
        "DROP id; ADD id serial PRIMARY KEY": "has another key now (id)",
    }
    for table in "abcde":
        shop.sql(
            f"CREATE TABLE s.{table} (id int PRIMARY KEY, line int, v int); INSERT INTO s.{table} VALUES (1, 2, 3)"
        )
        shop.target(table)
    assert {report.outcome for report in run(shop).values()} == {"done"}
    for table, actions in zip("abcde", changes, strict=True):
        for action in actions.format(table).split("; "):
            shop.sql(f"ALTER TABLE s.{table} {action}")
        shop.sql(f"UPDATE s.{table} SET v = 4")
    for table_report, reason in zip(run(shop).values(), changes.values(), strict=True):
        assert table_report.outcome == "failed" and reason in str(table_report.reason), table_report.reason
        assert "a full load is needed" in str(table_report.reason)
        assert table_report.snapshot_before == table_report.snapshot_after
        assert [*field_ids(shop, table_report.table)] == ["id", "line", "v"]


@pytest.mark.soak
def test_a_quiet_table_continues_after_a_rename(shop: Shop) -> None:
    name = make(shop)
    shop.sql("ALTER TABLE s.t RENAME id TO nr; ALTER TABLE s.t ADD extra int")
    report = run(shop)[name]
    assert report.outcome == "nothing", report.reason
    shop.sql("UPDATE s.t SET extra = 1 WHERE nr = 1")
    run(shop)
    assert not differs(shop, name, "v, nr, doc, line, extra")
