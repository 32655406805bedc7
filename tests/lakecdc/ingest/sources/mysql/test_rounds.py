"""Full load and log of real tables: events, their order and their positions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.ingest.batch import Batch
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.mysql import log as binlog
from lakecdc.metadata.positions import Position
from local_services.mysql import MySQL
from tests.on_demand import on_demand

from .conftest import Shop, both, only_mysql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.services

ALL = "SELECT * FROM s.orders ORDER BY id"


@contextmanager
def setting(shop: Shop, name: str, value: int) -> Iterator[None]:
    """Change a global setting for a while."""
    ((before,),) = shop.sql(f"SELECT @@GLOBAL.{name}")
    shop.sql(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        shop.sql(f"SET GLOBAL {name} = {before}")


@contextmanager
def writing(shop: Shop, statements: Callable[[int], list[str]]) -> Iterator[None]:
    """Run numbered statements in the meantime."""
    stop = threading.Event()

    def write() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            shop.sql(*statements(step))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@both
def test_the_log_continues_the_full_load(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE s.orders (id int PRIMARY KEY, amount decimal(10,2), note text)",
        r"INSERT INTO s.orders SELECT seq, seq + 0.5, CASE seq % 3 WHEN 0 THEN '' WHEN 1 THEN 'a\n\"b\",' END "
        "FROM seq_1_to_1000",
    )
    name = shop.target("orders")
    shop.run(chunk_rows=130)
    assert shop.model.batches[0][0].full_load
    assert shop.model.batches[0][0].source.facts["full_load_chunks"] == 8
    assert shop.model.rows(name) == shop.sql(ALL)
    shop.sql(
        "UPDATE s.orders SET note = 'changed' WHERE id <= 10",
        "DELETE FROM s.orders WHERE id > 990",
        "INSERT INTO s.orders VALUES (2000, 7, null)",
    )
    shop.run()
    assert shop.model.rows(name) == shop.sql(ALL)
    assert shop.model.tables[name][(2000,)]["amount"] == Decimal("7.00")
    shop.run()
    assert shop.model.batches[-1][0].rows is None


KEYS = [
    ("k varchar(20) CHARACTER SET latin1", "k", "concat('é', seq)", 10),
    ("k bigint unsigned", "k", "18446744073709551615 - seq", 10),
    ("k double", "k", "seq", 1),
    ("k int, l varchar(20)", "k, l(4)", "seq % 3, concat(lpad(seq, 4, '0'), '-', seq)", 4),
    ("k varchar(20) COLLATE utf8mb4_general_ci", "k", "concat('Kä''\\\\', seq)", 10),
    ("k varbinary(9)", "k", "unhex(hex(seq))", 10),
    ("k decimal(20,3)", "k", "seq / 7", 10),
    ("k datetime(6)", "k", "'2024-01-01' + INTERVAL seq * 1001 MICROSECOND", 10),
    ("k int, l int", "k, l", "seq % 3, seq", 4),
    ("k enum('b','a'), l int", "k, l", "1 + seq % 2, seq", 1),
    ("k text, l int", "k(2), l", "concat(seq % 9, 'same'), seq", 1),
]


@both
@pytest.mark.parametrize(("columns", "key", "rows", "chunks"), on_demand(KEYS, in_ci=KEYS[:4]))
def test_keys_of_every_type_are_divided_into_chunks(shop: Shop, columns: str, key: str, rows: str, chunks: int) -> None:
    shop.sql(f"CREATE TABLE s.t ({columns}, v int, PRIMARY KEY ({key}))")
    shop.sql(f"INSERT INTO s.t SELECT {rows}, seq FROM seq_1_to_1000")
    name = shop.target("t")
    shop.run(rounds=1, chunk_rows=100)
    assert sorted(shop.model.rows(name, "v")) == [(i,) for i in range(1, 1001)]
    assert shop.model.batches[0][0].source.facts["full_load_chunks"] == chunks


def test_a_key_of_the_target_is_loaded_by_the_primary_key(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, code varchar(9), v int)")
    shop.sql("INSERT INTO s.t SELECT seq, concat('c', seq), 0 FROM seq_1_to_100")
    name = shop.target("t", key=["code"])
    shop.run(chunk_rows=30)
    assert shop.model.batches[0][0].source.facts["full_load_chunks"] == 4
    shop.sql("UPDATE s.t SET code = 'moved', v = 1 WHERE id = 7", "DELETE FROM s.t WHERE id = 8")
    shop.run()
    assert shop.model.rows(name, "id", "code", "v") == shop.sql("SELECT * FROM s.t ORDER BY id")


@both
def test_writes_during_the_full_load_arrive(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.orders (id int PRIMARY KEY, amount int, note varchar(9))")
    shop.sql("INSERT INTO s.orders SELECT seq, 0, 'n' FROM seq_1_to_500")
    name = shop.target("orders")
    source = shop.open(chunk_rows=20)
    source.start(shop.positions, {})
    # read by the chunks, and repeated by the log
    shop.sql("UPDATE s.orders SET id = id + 1000 WHERE id % 7 = 0", "DELETE FROM s.orders WHERE id % 11 = 0")
    rounds = source.rounds()
    batches = next(rounds)
    with writing(
        shop,
        lambda step: [
            f"UPDATE s.orders SET amount = amount + 1, id = id + 1 WHERE id = {2000 + step}",
            f"REPLACE INTO s.orders VALUES ({step % 500}, {step}, 'w'), ({2001 + step}, 1, 'x')",
        ],
    ):
        for batch in batches:
            shop.model.apply(batch)
            source.applied(batch.target.table, batch.position)
        for batch in next(rounds):
            shop.model.apply(batch)
            source.applied(batch.target.table, batch.position)
    source.close()
    shop.run()
    assert shop.model.rows(name) == shop.sql(ALL)


@pytest.mark.soak
@both
def test_key_changes_swaps_and_reinserts_are_applied(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (a int, b varchar(9), v int, PRIMARY KEY (b, a))")
    shop.sql("INSERT INTO s.t SELECT seq, concat('b', seq), seq FROM seq_1_to_5")
    name = shop.target("t")
    shop.run()
    assert shop.model.batches[0][0].key == ("b", "a")
    shop.sql(
        "BEGIN", "UPDATE s.t SET a = 100 WHERE a = 1", "UPDATE s.t SET a = 1, b = 'b1' WHERE a = 2",
        "SAVEPOINT here", "DELETE FROM s.t", "ROLLBACK TO here", "UPDATE s.t SET a = 2, b = 'b2' WHERE a = 100",
        "DELETE FROM s.t WHERE a = 3", "INSERT INTO s.t VALUES (3, 'b3', 33)", "COMMIT",
        "BEGIN", "DELETE FROM s.t", "ROLLBACK", "UPDATE s.t SET b = 'B5' WHERE b = 'b5'",
    )  # fmt: skip
    shop.run()
    assert shop.model.rows(name, "a", "b", "v") == shop.sql("SELECT * FROM s.t ORDER BY a, b")
    events = shop.model.batches[-1][1]
    assert [
        (e["op"], tuple(e["key"]), e["old_key"] and tuple(e["old_key"])) for e in events if "b1" in tuple(e["key"])
    ][:2] == [
        ("d", ("b1", 1), None),
        ("u", ("b1", 100), ("b1", 1)),
    ]
    assert events[0]["source_time"] is not None and len(events[0]["order"]) == 65


@pytest.mark.soak
@both
def test_a_truncate_drops_earlier_rows(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)", "CREATE TABLE s.other (id int PRIMARY KEY)")
    shop.sql("INSERT INTO s.t VALUES (1, 1)", "INSERT INTO s.other VALUES (1)")
    name, other = shop.target("t"), shop.target("other")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (2, 2)", "TRUNCATE s.t", "INSERT INTO s.t VALUES (3, 3)")
    shop.run()
    assert shop.model.rows(name) == [(3, 3)]
    assert shop.model.rows(other) == [(1,)]
    shop.sql("TRUNCATE TABLE s.t", "TRUNCATE s.other")
    shop.run()
    assert shop.model.batches[-1][0].truncate_order
    assert shop.model.rows(name) == shop.model.rows(other) == []


def test_a_transaction_is_never_cut(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)")
    name = shop.target("t")
    shop.run()
    for start in (0, 100, 200):
        shop.sql(f"INSERT INTO s.t SELECT seq, 0 FROM seq_{start + 1}_to_{start + 100}", "FLUSH BINARY LOGS")
    before = len(shop.model.batches)
    shop.run(max_batch_events=50)
    assert [len(events) for _batch, events in shop.model.batches[before:] if events] == [100, 100, 100]
    assert len(shop.model.rows(name)) == 300


@pytest.mark.soak
def test_bytes_of_selected_rows_bound_a_batch(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, b text)", "CREATE TABLE s.other (b text)")
    name = shop.target("t")
    shop.run()
    for i in range(4):
        shop.sql(f"INSERT INTO s.t VALUES ({i}, '{'x' * 600}')", f"INSERT INTO s.other VALUES ('{'y' * 5000}')")
    before = len(shop.model.batches)
    shop.run(max_batch_bytes=1000)
    assert [len(events) for _batch, events in shop.model.batches[before:] if events] == [2, 2]
    assert len(shop.model.rows(name)) == 4


@pytest.mark.parametrize("seconds", [pytest.param(0, marks=pytest.mark.soak), 1e-9])
def test_a_round_ended_by_its_time_limit_is_repeated_exactly(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A round read again, after its disk was lost, has no time limit and would continue for longer."""
    read = rounds.read

    def lost(spark: SparkSession, task: binlog.ReadLog, summary: type[Any]) -> tuple[Any, DataFrame]:
        first, cells = read(spark, replace(task, limits=replace(task.limits, seconds=seconds)), summary)
        again = replace(task, limits=replace(task.limits, seconds=1e-9))
        cells.unpersist()
        return first, spark.range(0, 1, 1, 1).mapInArrow(again, rounds.SCHEMA)

    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, n int)")
    name = shop.target("t")
    shop.run()
    for number in range(4):
        shop.sql(f"INSERT INTO s.t VALUES ({number}, 0), ({number + 10}, 0)")
    monkeypatch.setattr(rounds, "read", lost)
    loaded = len(shop.model.batches)
    shop.run()
    keys_of_batches = [[tuple(e["key"]) for e in events] for _, events in shop.model.batches[loaded:] if events]
    expected = [[(0,), (10,)], [(1,), (11,)], [(2,), (12,)], [(3,), (13,)]]
    assert keys_of_batches == (expected if seconds else [[key for keys in expected for key in keys]])
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")


def test_a_recorded_batch_ends_at_the_same_position(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY)", "CREATE TABLE s.u (id int PRIMARY KEY)")
    name, other = shop.target("t"), shop.target("u")
    shop.run()
    for i in range(6):
        shop.sql(f"INSERT INTO s.t VALUES ({i})", f"INSERT INTO s.u VALUES ({i})")
    positions = {**shop.model.positions}
    interrupted = shop.open(max_batch_events=7)
    interrupted.start(positions, {})
    ends: dict[str, Position] = {batch.target.table: batch.position for batch in next(interrupted.rounds())}
    interrupted.close()
    shop.sql("INSERT INTO s.t VALUES (100)")
    before = len(shop.model.batches)
    shop.run(max_batch_events=2, recorded={name: ends[name]})
    batches = [(batch, events) for batch, events in shop.model.batches[before:] if batch.target.table == name]
    assert batches[0][0].position.offsets == ends[name].offsets
    assert len(batches[0][1]) == 4 and len(batches) > 2, "the limit starts again after it"
    assert shop.model.rows(name) == shop.sql("SELECT * FROM s.t ORDER BY id")
    assert shop.model.rows(other) == shop.sql("SELECT * FROM s.u ORDER BY id")


@both
def test_columns_may_be_added_and_dropped_during_the_run(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, a int, b text)", "INSERT INTO s.t VALUES (1, 1, 'one')")
    name = shop.target("t")
    shop.run()
    shop.sql(
        "INSERT INTO s.t VALUES (2, 2, 'two')",
        "ALTER TABLE s.t ADD COLUMN c decimal(6,2) DEFAULT 9.5, ADD d varchar(9) NOT NULL, DROP COLUMN a",
        "INSERT INTO s.t VALUES (3, 'three', 3.5, 'd')",
        "UPDATE s.t SET b = 'two!' WHERE id = 2",
    )
    shop.run()
    batch, events = shop.model.batches[-1]
    assert [(c.name, c.type, c.required, c.fill) for c in batch.columns] == [
        ("id", "int", True, None), ("b", "string", False, None), ("c", "decimal(6,2)", False, Decimal("9.50")),
        ("d", "string", False, ""),
    ]  # fmt: skip
    assert [tuple(e["row"]) for e in events] == [
        (2, "two", Decimal("9.50"), ""), (3, "three", Decimal("3.50"), "d"), (2, "two!", Decimal("9.50"), ""),
    ]  # fmt: skip
    assert shop.model.rows(name, "id", "b") == shop.sql("SELECT id, b FROM s.t ORDER BY id")


@both
def test_a_new_column_shows_the_servers_default_in_older_rows(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY)", "INSERT INTO s.t VALUES (1)")
    shop.target("t")
    shop.run()
    new = {
        "timestamp DEFAULT '2024-01-01 05:00:00'": "cast(unix_timestamp({}) as signed)",
        "varbinary(5) DEFAULT x'00ff'": "{}", "binary(4) DEFAULT 'a'": "{}", "binary(3) NOT NULL": "{}",
        "varchar(20) DEFAULT 'CURRENT_TIMESTAMP'": "{}", r"varchar(9) DEFAULT 'a\\''b'": "{}",
        "varchar(9) CHARACTER SET latin1 DEFAULT 'é'": "{}", r"enum('q\\','r') NOT NULL": "{}",
        "set('a') NOT NULL": "{}",
        "bit(9) DEFAULT b'100000001'": "{} + 0", "float DEFAULT 0.1": "cast({} * 1e0 as double)", "int NOT NULL": "{}",
        "time(2) NOT NULL": "cast({} as char)", "datetime(3) DEFAULT '2024-01-01 00:00:00.5'": "{}",
        "date NOT NULL": "null",
        "decimal(6,2) DEFAULT -1.5": "{}", "year DEFAULT 2001": "{}", "int": "{}", "text NOT NULL": "{}",
        "json NOT NULL": "{}", "double DEFAULT 1e300": "{}", "blob NOT NULL": "{}", "bigint unsigned NOT NULL": "{}",
    }  # fmt: skip
    added = ", ".join(f"ADD c{i} {definition}" for i, definition in enumerate(new))
    shop.sql("SET time_zone = '+05:00', sql_mode = ''", "INSERT INTO s.t VALUES (2)", f"ALTER TABLE s.t {added}")
    (source,) = shop.sql(
        "SET time_zone = '+00:00'",
        f"SELECT {', '.join(sql.format(f'c{i}') for i, sql in enumerate(new.values()))} FROM s.t WHERE id = 1",
    )
    assert not shop.run().refused
    fills = [c.fill for c in shop.model.batches[-1][0].columns[1:]]
    values: list[Any] = [bytes(v) if isinstance(v, bytearray) else v for v in fills]
    values[0] = int(values[0].timestamp())
    assert dict(zip(new, values, strict=True)) == dict(zip(new, source, strict=True))


@pytest.mark.soak
@only_mysql
def test_rows_changed_by_a_cascade_are_applied(shop: Shop) -> None:
    shop.sql(
        "CREATE TABLE s.parent (id int PRIMARY KEY)",
        "CREATE TABLE s.child (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) "
        "ON DELETE CASCADE ON UPDATE SET NULL)",
        "INSERT INTO s.parent VALUES (1), (2), (3)", "INSERT INTO s.child VALUES (1, 1), (2, 2), (3, 3)",
    )  # fmt: skip
    name = shop.target("child")
    shop.run()
    shop.sql("DELETE FROM s.parent WHERE id = 1", "UPDATE s.parent SET id = 9 WHERE id = 2")
    assert not shop.run().refused
    assert shop.model.rows(name) == [(2, None), (3, 3)] == shop.sql("SELECT * FROM s.child ORDER BY id")


@pytest.mark.soak
@only_mysql
def test_a_generated_invisible_key_is_the_key(shop: Shop) -> None:
    shop.sql(
        "SET sql_generate_invisible_primary_key = ON", "CREATE TABLE s.t (v int)", "INSERT INTO s.t VALUES (7), (7)"
    )
    name = shop.target("t")
    shop.sql("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    try:
        shop.run(chunk_rows=1)
        shop.sql("UPDATE s.t SET v = 8 LIMIT 1", "INSERT INTO s.t VALUES (9)")
        assert not shop.run().refused
    finally:
        shop.sql("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")
    assert shop.model.batches[0][0].key == ("my_row_id",)
    assert sorted(shop.model.rows(name, "v")) == [(7,), (8,), (9,)]


@pytest.mark.soak
def test_names_may_have_any_case(shop: Shop) -> None:
    shop.sql('CREATE TABLE s.`Order Lines` (`Id` int PRIMARY KEY, `a b` text, `sel.ect` int, `q``"t` int)')
    shop.sql("INSERT INTO s.`Order Lines` VALUES (1, 'x', 2, 3)")
    name = shop.target("lines", source_table=f"{shop.schema}.Order Lines")
    shop.run()
    shop.sql("INSERT INTO s.`Order Lines` VALUES (2, 'y', 3, 4)")
    shop.run()
    assert shop.model.rows(name) == [(1, "x", 2, 3), (2, "y", 3, 4)]
    assert set(shop.model.types[name]) == {"Id", "a b", "sel.ect", 'q`"t'}


@both
def test_reading_continues_across_log_files_and_server_crashes(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v longtext)")
    name = shop.target("t")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (1, 'a')", "FLUSH BINARY LOGS", "INSERT INTO s.t VALUES (2, 'b')")
    shop.server.stop(crash=True)
    shop.server.start()
    # a packet larger than the protocol's 16 MB
    shop.sql("INSERT INTO s.t VALUES (3, 'c')", "UPDATE s.t SET v = repeat('x', 18000000) WHERE id = 1")
    shop.run()
    assert [(i, len(v)) for i, v in shop.model.rows(name)] == [(1, 18_000_000), (2, 1), (3, 1)]


@both
def test_a_table_without_a_key_is_loaded_exactly(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (v int)", "INSERT INTO s.t SELECT seq FROM seq_1_to_100")
    shop.target("t", mode="append")
    source = shop.open()
    source.start(shop.positions, {})
    # between the start and the reading, and during the reading: each row arrives exactly once
    shop.sql("INSERT INTO s.t VALUES (1000)")
    values: list[int] = []

    def take(batches: list[Batch]) -> None:
        for batch in batches:
            values.extend(e["row"]["v"] for e in (batch.rows.frame.collect() if batch.rows is not None else ()))
            source.applied(batch.target.table, batch.position)

    rounds = source.rounds()
    # MySQL logs every other transaction this long before its rows become visible
    slow = {"sync_binlog": 2, "binlog_group_commit_sync_delay": 200_000} if isinstance(shop.server, MySQL) else {}
    with ExitStack() as stack:
        for name, value in slow.items():
            stack.enter_context(setting(shop, name, value))
        with writing(shop, lambda step: [f"INSERT INTO s.t VALUES ({1000 + step})"]):
            take(next(rounds))
            take(next(rounds))
    for batches in rounds:
        take(batches)
    source.close()
    expected = sorted(v for (v,) in shop.sql("SELECT v FROM s.t"))
    assert len(values) > 102 and sorted(values) == [v for v in expected if v <= max(values)]
