"""Full load and log of real tables: events, their order and their positions."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.postgres import log as wal
from lakecdc.ingest.sources.postgres.reading import Bounds

from .conftest import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILL = """
INSERT INTO s.orders SELECT i, i + 0.5, CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN E'a\\n"b",' END
FROM generate_series(1, 1000) i
"""
_ALL = "SELECT * FROM s.orders ORDER BY id"


def test_the_log_continues_the_full_load(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, amount numeric(10,2), note text)")
    shop.sql(_FILL)
    name = shop.target("orders")
    shop.run(chunk_bytes=8192)
    assert shop.model.batches[0][0].full_load
    assert shop.model.batches[0][0].source.facts["full_load_chunks"] not in (0, 1)
    assert shop.model.rows(name) == shop.sql(_ALL)
    shop.sql("UPDATE s.orders SET note = 'changed' WHERE id <= 10")
    shop.sql("DELETE FROM s.orders WHERE id > 990")
    shop.sql("INSERT INTO s.orders VALUES (2000, 7, null)")
    shop.run()
    assert shop.model.rows(name) == shop.sql(_ALL)
    assert shop.model.tables[name][(2000,)]["amount"] == Decimal("7.00")
    shop.run()
    assert shop.model.batches[-1][0].rows is None


def big(character: str) -> str:
    """Return SQL of a value so large and random that Postgres stores it out of line."""
    return f"(SELECT string_agg(md5('{character}' || i), '') FROM generate_series(1, 500) i)"


def test_unchanged_large_values_stay_open(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int, body text)")
    shop.sql(f"INSERT INTO s.t VALUES (1, 0, {big('a')}), (2, 0, {big('b')})")
    name = shop.target("t")
    shop.run()
    shop.sql("UPDATE s.t SET n = 1 WHERE id = 1")
    shop.sql("UPDATE s.t SET id = 3 WHERE id = 2")
    shop.run()
    events = shop.model.batches[-1][1]
    assert [(e["op"], e["open"], e["old_key"]) for e in events if e["op"] == "u"] == [
        ("u", ["body"], None),
        ("u", ["body"], (2,)),
    ]
    assert [tuple(e["key"]) for e in events if e["op"] == "d"] == [(2,)]
    assert all(e["row"]["body"] is None for e in events if e["op"] == "u")
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")


@pytest.mark.soak
def test_full_identity_fills_large_values_itself(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int, n int, body text)")
    shop.sql("ALTER TABLE s.t REPLICA IDENTITY FULL")
    shop.sql(f"INSERT INTO s.t VALUES (1, 0, {big('a')}), (2, 0, {big('b')})")
    name = shop.target("t", key=["id"])
    shop.run()
    shop.sql("UPDATE s.t SET n = 1 WHERE id = 1")
    shop.sql("UPDATE s.t SET id = 3 WHERE id = 2")
    shop.sql("DELETE FROM s.t WHERE id = 1")
    shop.run()
    assert [e["open"] for e in shop.model.batches[-1][1]] == [None] * 4
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")


@pytest.mark.soak
def test_an_unchanged_large_key_is_known(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (k text, n int, PRIMARY KEY (k, n), v int)")
    shop.sql("ALTER TABLE s.t ALTER k SET STORAGE EXTERNAL")
    shop.sql("INSERT INTO s.t SELECT repeat('k', 2500), 1, 1")
    name = shop.target("t")
    shop.run()
    shop.sql("UPDATE s.t SET v = 2")
    shop.run()
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t")


def test_composite_keys_may_change_and_swap(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (a int, b text, v int, PRIMARY KEY (b, a))")
    shop.sql("INSERT INTO s.t SELECT i, 'b' || i, i FROM generate_series(1, 5) i")
    name = shop.target("t")
    shop.run()
    assert shop.model.batches[0][0].key == ("b", "a")
    shop.sql(
        "BEGIN; UPDATE s.t SET a = 100 WHERE a = 1; UPDATE s.t SET a = 1, b = 'b1' WHERE a = 2;"
        "UPDATE s.t SET a = 2, b = 'b2' WHERE a = 100; DELETE FROM s.t WHERE a = 3;"
        "INSERT INTO s.t VALUES (3, 'b3', 33); COMMIT"
    )
    shop.run()
    assert shop.model.rows(name, "a", "b", "v") == shop.sql("SELECT * FROM s.t ORDER BY a, b")
    first = shop.model.batches[-1][1][0]
    assert first["source_time"] is not None and len(first["order"]) == 65


@pytest.mark.soak
def test_a_truncate_drops_earlier_rows(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)")
    shop.sql("CREATE TABLE s.other (id int PRIMARY KEY)")
    shop.sql("INSERT INTO s.t VALUES (1, 1); INSERT INTO s.other VALUES (1)")
    name, other = shop.target("t"), shop.target("other")
    shop.run()
    shop.sql("BEGIN; INSERT INTO s.t VALUES (2, 2); TRUNCATE s.t; INSERT INTO s.t VALUES (3, 3); COMMIT")
    shop.run()
    assert shop.model.rows(name) == [(3, 3)]
    assert shop.model.rows(other) == [(1,)]
    shop.sql("TRUNCATE s.t, s.other")
    shop.run()
    batch = shop.model.batches[-1][0]
    assert batch.truncate_order and batch.rows is not None
    assert shop.model.rows(name) == shop.model.rows(other) == []


def test_a_transaction_is_never_cut(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)")
    name = shop.target("t")
    shop.run()
    for start in (0, 100, 200):
        shop.sql(f"INSERT INTO s.t SELECT i, 0 FROM generate_series({start} + 1, {start} + 100) i")
    before = len(shop.model.batches)
    shop.run(max_batch_events=50)
    assert [len(events) for _batch, events in shop.model.batches[before:]] == [100, 100, 100, 0]
    places = [batch.position.offsets["lsn"] for batch, _events in shop.model.batches]
    assert places == sorted(places, key=lambda text: [int(part, 16) for part in text.split("/")])
    assert len(shop.model.rows(name)) == 300


@pytest.mark.soak
def test_batches_end_at_their_byte_limit(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, body text)")
    name = shop.target("t")
    shop.run()
    for start in (0, 10, 20, 30):
        shop.sql(f"INSERT INTO s.t SELECT i, repeat('x', 1000) FROM generate_series({start} + 1, {start} + 10) i")
    before = len(shop.model.batches)
    shop.run(max_batch_bytes=18_000)
    assert [len(events) for _batch, events in shop.model.batches[before:]] == [20, 20, 0]
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")


def test_columns_may_be_added_and_dropped_during_the_run(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, a int, b text)")
    shop.sql("INSERT INTO s.t VALUES (1, 1, 'one')")
    name = shop.target("t")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (2, 2, 'two')")
    shop.sql("ALTER TABLE s.t ADD COLUMN c numeric(6,2), DROP COLUMN a")
    shop.sql("INSERT INTO s.t VALUES (3, 'three', 3.5)")
    shop.sql("UPDATE s.t SET b = 'two!' WHERE id = 2")
    shop.run()
    batch, events = shop.model.batches[-1]
    assert [(c.name, c.type, c.required) for c in batch.columns] == [
        ("id", "int", True), ("b", "string", False), ("c", "decimal(6,2)", False)
    ]  # fmt: skip
    assert list(batch.source.columns or ()) == ["id", "b", "c"]
    assert [tuple(e["row"]) for e in events] == [(2, "two", None), (3, "three", Decimal("3.50")), (2, "two!", None)]
    assert shop.model.rows(name, "id", "b") == shop.sql("SELECT id, b FROM s.t ORDER BY id")


def test_a_column_of_an_unknown_type_during_the_run_stops_only_its_table(shop: Shop) -> None:
    for table in ("t", "good"):
        shop.sql(f"CREATE TABLE s.{table} (id int PRIMARY KEY)")
    name, good = shop.target("t"), shop.target("good")
    shop.run()
    source = shop.open()
    source.start(shop.positions, {})
    shop.sql("ALTER TABLE s.t ADD COLUMN odd point; INSERT INTO s.t VALUES (1, '(1,2)'); INSERT INTO s.good VALUES (1)")
    rounds = source.rounds()
    assert [batch.target.table for batch in next(rounds)] == [good]
    source.close()
    assert "Column 'odd'" in str(source.refused[name])


def test_partitions_feed_one_table(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    shop.sql("CREATE TABLE s.t1 PARTITION OF s.t FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')")
    shop.sql("CREATE TABLE s.t2 (v text, day date NOT NULL, id int NOT NULL)")
    shop.sql("ALTER TABLE s.t ATTACH PARTITION s.t2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')")
    shop.sql("INSERT INTO s.t SELECT i, date '2024-01-01' + i, 'v' FROM generate_series(0, 50) i")
    name = shop.target("t")
    shop.run()
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")
    shop.sql("UPDATE s.t SET day = day + 20 WHERE id IN (15, 16); DELETE FROM s.t WHERE id > 45")
    shop.sql("UPDATE s.t SET v = 'w' WHERE id < 3")
    shop.run()
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")


def test_names_may_have_any_case(shop: Shop) -> None:
    shop.sql('CREATE TABLE s."Order Lines" ("Id" int PRIMARY KEY, "a b" text, "sel.ect" int, "q""`t" int)')
    shop.sql("""INSERT INTO s."Order Lines" VALUES (1, 'x', 2, 3)""")
    name = shop.target("lines", source_table=f"{shop.schema}.Order Lines")
    shop.run()
    shop.sql("""INSERT INTO s."Order Lines" VALUES (2, 'y', 3, 4)""")
    shop.run()
    assert shop.model.rows(name) == [(1, "x", 2, 3), (2, "y", 3, 4)]
    assert set(shop.model.types[name]) == {"Id", "a b", "sel.ect", 'q"`t'}


def test_a_table_of_one_nullable_column_loses_no_row(shop: Shop) -> None:
    """Such a row is an empty line in CSV."""
    shop.sql("CREATE TABLE s.t (id int, v text)")
    shop.sql("ALTER TABLE s.t REPLICA IDENTITY FULL")
    shop.sql("INSERT INTO s.t VALUES (null, null), (1, '')")
    shop.target("t", key=["id"], exclude_columns=["v"])
    shop.run(rounds=1)
    batch, events = shop.model.batches[0]
    # the row without a key is counted, and quarantined once the load is written
    assert [e["row"]["id"] for e in events] == [1]
    assert batch.rows and batch.rows.load and batch.rows.load.left_out.value == 1


@pytest.mark.soak
def test_rows_may_be_larger_than_a_block(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql("INSERT INTO s.t SELECT i, repeat(E'x\"\\n', 2000000) FROM generate_series(1, 3) i")
    name = shop.target("t")
    shop.run()
    assert [len(row[1]) for row in shop.model.rows(name)] == [6_000_000] * 3


@pytest.mark.parametrize("seconds", [0, pytest.param(1e-9, marks=pytest.mark.soak)])
def test_a_round_is_repeated_exactly_after_its_disk_was_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A round read again has a time limit that would end it sooner, or none and would continue for longer."""
    read = rounds.read

    def lost(spark: SparkSession, task: wal.ReadLog, summary: type[Any]) -> tuple[Any, DataFrame]:
        first, cells = read(spark, replace(task, limits=Bounds(seconds=seconds)), summary)
        again = replace(task, limits=Bounds(seconds=1e-9))
        cells.unpersist()
        return first, spark.range(0, 1, 1, 1).mapInArrow(again, rounds.SCHEMA)

    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int)")
    name = shop.target("t")
    shop.run()
    for number in range(4):
        shop.sql(f"INSERT INTO s.t VALUES ({number}, 0)")
    monkeypatch.setattr(rounds, "read", lost)
    loaded = len(shop.model.batches)
    shop.run()
    keys_of_batches = [[tuple(e["key"]) for e in events] for _, events in shop.model.batches[loaded:] if events]
    assert sorted(key for keys in keys_of_batches for key in keys) == [(0,), (1,), (2,), (3,)]
    assert (len(keys_of_batches) > 1) is bool(seconds)
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")
