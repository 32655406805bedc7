"""A batch that an interrupted run wrote to a side table ends at the same place again."""

from __future__ import annotations

import collections

import pytest

from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop


def test_a_round_ends_at_the_recorded_position(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql("CREATE TABLE s.u (id int PRIMARY KEY)")
    name, other = shop.target("t"), shop.target("u")
    shop.run()
    before = dict(shop.model.positions)
    shop.sql("INSERT INTO s.t SELECT i, 'a' FROM generate_series(1, 20) i")
    shop.sql("UPDATE s.t SET v = 'b' WHERE id <= 5")
    shop.run(rounds=1)
    interrupted, events = next((b, e) for b, e in shop.model.batches[::-1] if b.target.table == name)
    shop.model.positions = {name: before[name], other: shop.model.positions[other]}
    shop.model.tables[name] = {}
    shop.sql("UPDATE s.t SET v = 'c' WHERE id = 1; INSERT INTO s.u VALUES (1)")
    seen = len(shop.model.batches)
    shop.run(recorded={name: interrupted.position})
    again = [(b, e) for b, e in shop.model.batches[seen:] if b.target.table == name]
    assert [b.position.offsets for b, _ in again][0] == interrupted.position.offsets
    assert [e["order"] for e in again[0][1]] == [e["order"] for e in events]
    assert len(again[1][1]) == 1
    assert again[0][0].position.read_through == interrupted.position.read_through
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")
    assert len(shop.model.tables[other]) == 1


@pytest.mark.soak
def test_smaller_batches_reach_the_recorded_position(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY)")
    name = shop.target("t")
    shop.run()
    before = dict(shop.model.positions)
    for key in range(1, 5):
        shop.sql(f"INSERT INTO s.t VALUES ({key})")
    shop.run(rounds=1)
    interrupted = shop.model.batches[-1][0].position
    shop.model.positions = before
    shop.model.tables[name] = {}
    shop.sql("INSERT INTO s.t VALUES (9)")
    seen = len(shop.model.batches)
    shop.run(recorded={name: interrupted}, max_batch_events=2)
    places = [b.position.offsets for b, _ in shop.model.batches[seen:]]
    assert interrupted.offsets in places[1:-1]
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")


@pytest.mark.parametrize("load", [pytest.param(True, marks=pytest.mark.soak), False])
def test_the_history_has_every_event_once(shop: Shop, monkeypatch: pytest.MonkeyPatch, load: bool) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql("INSERT INTO s.t SELECT i, 'a' FROM generate_series(1, 20) i")
    name = shop.target("t", history_table=f"{shop.schema}.t_history")
    if not load:
        run(shop)
        shop.sql("UPDATE s.t SET v = 'b' WHERE id <= 5")
    monkeypatch.setattr("lakecdc.runtime.failpoints._passes", collections.Counter())
    monkeypatch.setenv("LAKECDC_FAILPOINT", "after_side_tables=raise")
    assert "after_side_tables" in (run(shop)[name].reason or "")
    monkeypatch.delenv("LAKECDC_FAILPOINT")
    shop.sql("UPDATE s.t SET v = 'c' WHERE id <= 3; DELETE FROM s.t WHERE id = 20; TRUNCATE s.t")
    shop.sql("INSERT INTO s.t VALUES (1, 'd')")
    assert run(shop)[name].outcome == "done"
    assert not differs(shop, name, "id, v")
    ops = collections.Counter(row[0] for row in shop.lake.duckdb_rows(f"{name}_history", "_lakecdc_op"))
    # an interrupted load is repeated and reads the source's present rows
    assert ops == ({"r": 1} if load else {"r": 20, "u": 8, "d": 1, "t": 1, "c": 1})
    assert run(shop)[name].outcome == "nothing"
