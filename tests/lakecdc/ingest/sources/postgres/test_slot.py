"""The life of the slot: who holds it back, where it advances, what a killed run leaves and how it continues."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lakecdc.metadata.positions import Position
from lakecdc.model.positions import lsn

from .conftest import Shop

# its installed name; in the checkout its folder is spark_jobs
main = import_module("lakecdc.jobs.postgres_slot").main


def confirmed(shop: Shop) -> int:
    """Return the slot's confirmed position."""
    query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name ="
    ((text,),) = shop.sql(f"{query} '{shop.schema}'")
    return lsn(str(text))


def at(position: Position | None) -> int:
    """Return a position as a number."""
    assert position is not None
    return lsn(position.offsets["lsn"])


def tables(shop: Shop, *names: str) -> list[str]:
    """Create tables with one row each, and their targets."""
    for name in names:
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int); INSERT INTO s.{name} VALUES (0, 0)")
    return [shop.target(name) for name in names]


def insert(shop: Shop, table: str, *ids: int) -> None:
    """Insert rows in one transaction each."""
    for i in ids:
        shop.sql(f"INSERT INTO s.{table} VALUES ({i}, {i})")


def ids(shop: Shop, name: str) -> list[Any]:
    """Return the keys in the model."""
    return [row[0] for row in shop.model.rows(name, "id")]


def test_the_position_of_an_idle_table_advances(shop: Shop) -> None:
    busy, idle = tables(shop, "busy", "idle")
    shop.run()
    insert(shop, "busy", 1, 2)
    facts = shop.run().facts
    positions = shop.model.positions
    assert at(positions[busy]) == at(positions[idle]) == confirmed(shop)
    ((now,),) = shop.sql("SELECT clock_timestamp()::text")
    position = positions[idle]
    assert position and position.read_through and position.read_through[:10] == str(now)[:10]
    assert set(shop.model.batches[-1][0].source.facts) == {"source_lag_seconds"} and set(facts) == {"slot_lag_bytes"}


@pytest.mark.soak
def test_the_lag_is_the_log_left_by_the_run(shop: Shop) -> None:
    tables(shop, "one")
    shop.run()
    shop.sql("CREATE TABLE s.other AS SELECT repeat('x', 1000) AS v FROM generate_series(1, 4000)")
    # a slot keeps the log since the last of these
    shop.sql("SELECT pg_log_standby_snapshot()")
    insert(shop, "one", 1)
    lag = shop.run().facts["slot_lag_bytes"]
    assert isinstance(lag, int) and lag < 2_000_000


def test_a_failing_table_beyond_the_lag_limit_is_given_up(shop: Shop) -> None:
    good, bad = tables(shop, "good", "bad")
    shop.run()
    insert(shop, "bad", 1)
    insert(shop, "good", *range(1, 20))
    assert not shop.run(failing=bad, max_slot_lag_bytes=10**9).given_up
    assert "a full load is needed" in str(shop.run(failing=bad, max_slot_lag_bytes=100).given_up[bad])
    assert confirmed(shop) == at(shop.model.positions[good]) > at(shop.model.positions[bad])
    assert "a full load is needed" in str(shop.run().refused[bad])
    shop.model.positions[bad] = None
    shop.model.tables[bad].clear()
    shop.run()
    assert ids(shop, bad) == [0, 1]


def test_a_lone_table_that_left_the_source_is_given_up_too(shop: Shop) -> None:
    (name,) = tables(shop, "t")
    shop.run()
    slot_before = confirmed(shop)
    shop.sql("DROP TABLE s.t; CREATE TABLE s.other (id int); INSERT INTO s.other SELECT generate_series(1, 1000)")
    assert not shop.run(max_slot_lag_bytes=10**9).given_up and confirmed(shop) == slot_before
    assert set(shop.run(max_slot_lag_bytes=100).given_up) == {name} and confirmed(shop) > slot_before


def test_a_run_killed_before_the_slot_moved_repeats_nothing(shop: Shop) -> None:
    name, idle = tables(shop, "t", "idle")
    shop.run()
    insert(shop, "t", 1, 2)
    slot_before = confirmed(shop)
    shop.run(rounds=1)
    assert confirmed(shop) == slot_before and ids(shop, name) == [0, 1, 2]
    insert(shop, "t", 3)
    shop.run()
    assert [tuple(e["key"]) for e in shop.model.batches[-2][1]] == [(3,)], "only later events"
    assert ids(shop, name) == [0, 1, 2, 3]


def test_a_full_load_killed_before_its_end_starts_again(shop: Shop) -> None:
    """One table is loaded, the other is not; the slot already exists."""
    done, lost = tables(shop, "done", "lost")
    source = shop.open()
    source.start(shop.positions, {})
    for batch in next(source.rounds()):
        if batch.target.table == done:
            shop.model.apply(batch)
    source.close()
    insert(shop, "done", 1)
    insert(shop, "lost", 1)
    shop.run()
    assert ids(shop, done) == ids(shop, lost) == [0, 1]
    loads = [batch.target.table for batch, _events in shop.model.batches if batch.full_load]
    assert loads == [done, lost]


def test_a_slot_of_a_killed_first_load_is_reused(shop: Shop) -> None:
    (name,) = tables(shop, "t")
    shop.open().start(shop.positions, {})
    insert(shop, "t", 1)
    source = shop.open()
    source.close()
    shop.run()
    assert ids(shop, name) == [0, 1]
    assert confirmed(shop) == at(shop.model.positions[name])
    leftover = shop.sql(f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '{shop.schema}%'")
    assert leftover == [(shop.schema,)]


def test_a_table_added_later_is_loaded_beside_the_log(shop: Shop) -> None:
    (first,) = tables(shop, "first")
    shop.run()
    (second,) = tables(shop, "second")
    insert(shop, "first", 1)
    insert(shop, "second", 1)
    source = shop.open()
    source.start(shop.positions, {})
    insert(shop, "second", 2)
    insert(shop, "first", 2)
    for batches in source.rounds():
        for batch in batches:
            shop.model.apply(batch)
            source.applied(batch.target.table, batch.position)
        source.finish_round()
    source.close()
    assert ids(shop, first) == ids(shop, second) == [0, 1, 2]
    assert [e["op"] for batch, events in shop.model.batches if batch.target.table == second for e in events] == [
        "r", "r", "c"
    ]  # fmt: skip


def test_transactions_open_during_the_snapshot_are_not_lost(shop: Shop) -> None:
    """The snapshot waits for them, so their commits are either in it or in the log."""
    import threading

    import psycopg

    (name,) = tables(shop, "t")
    writer = psycopg.connect(shop.server.dsn)
    writer.execute(f"INSERT INTO {shop.schema}.t VALUES (1, 1)".encode())
    thread = threading.Thread(target=shop.run)
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'walsender'"
    while not shop.sql(waiting):
        assert thread.is_alive()
    insert(shop, "t", 2)
    writer.commit()
    writer.close()
    thread.join()
    insert(shop, "t", 3)
    shop.run()
    assert ids(shop, name) == [0, 1, 2, 3]


def test_slot_and_publication_can_be_managed_by_command(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (name,) = tables(shop, "t")
    document = shop.lake.spec(
        "ingest",
        source={"type": "postgres", "dsn": shop.server.dsn, "slot": shop.schema, "create": False},
        target=shop.targets,
    )
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(document))

    def run(command: str, code: int = 0) -> dict[str, Any]:
        assert main([command, "--spec", str(path)]) == code
        return dict(json.loads(capsys.readouterr().out or "{}"))

    assert run("status") == {"slot": None, "publication": None, "tables": []}
    created = run("create")
    assert created["tables"] == [name] and created["publication"] == created["slot"]["name"] == shop.schema
    assert run("create") == created | {"slot": created["slot"] | {"lag_bytes": run("status")["slot"]["lag_bytes"]}}
    insert(shop, "t", 1)
    shop.run(create=False)
    assert ids(shop, name) == [0, 1]
    source = shop.open()
    source.start(shop.positions, {})
    assert run("drop", 3) == {}
    source.close()
    assert run("drop") == {"dropped": [f"slot {shop.schema}", f"publication {shop.schema}"]}
    assert run("status")["slot"] is None
    path.write_text("{}")
    assert run("status", 4) == {}
