"""What a run refuses before any write, and the reasons it gives."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any, cast

import psycopg
import pytest

from lakecdc.contract.errors import ConflictError, InputError, SourceUnavailableError
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.ingest.sources.postgres import slots
from lakecdc.ingest.sources.postgres.connect import address, connect
from local_services.process import free_port
from tests.lakecdc.ingest.sources.model import move

from .conftest import Shop


def table(shop: Shop, name: str = "t", rows: int = 1) -> str:
    """Create a table with a key, and its target."""
    shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int)")
    shop.sql(f"INSERT INTO s.{name} SELECT i, 0 FROM generate_series(1, {rows}) i")
    return shop.target(name)


def test_an_unreachable_server_is_named_without_its_password(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_TEST", "hush-hush")
    shop.target("t")
    port = free_port()
    dsn = f"postgresql://me@127.0.0.1:{port}/shop"
    with pytest.raises(SourceUnavailableError, match=f"127.0.0.1:{port} cannot be reached") as caught:
        shop.start(dsn=dsn, password={"env": "PASSWORD_OF_TEST"})
    assert "hush" not in str(caught.value) + repr(vars(shop.open(password={"env": "PASSWORD_OF_TEST"}).server))


def test_an_unknown_database_is_not_an_unreachable_server(shop: Shop) -> None:
    shop.target("t")
    with pytest.raises(InputError, match='refuses the login.*database "nowhere" does not exist'):
        shop.start(dsn=shop.server.dsn.replace("dbname=postgres", "dbname=nowhere"))


def test_connections_notice_a_lost_peer(shop: Shop) -> None:
    table(shop)
    source: Any = shop.spec().source
    with connect(address(source)) as session, socket.socket(fileno=os.dup(session.fileno())) as peer:
        for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
            assert peer.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


def test_a_malformed_connection_string_is_refused(shop: Shop) -> None:
    shop.target("t")
    with pytest.raises(InputError, match="not a libpq connection string"):
        shop.start(dsn="nonsense with blanks")


def test_tables_that_cannot_be_fed_do_not_stop_the_others(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.keyless (id int)")
    shop.sql("CREATE TABLE s.full_keyless (id int)")
    shop.sql("ALTER TABLE s.full_keyless REPLICA IDENTITY FULL")
    shop.sql("CREATE TABLE s.nothing (id int PRIMARY KEY)")
    shop.sql("ALTER TABLE s.nothing REPLICA IDENTITY NOTHING")
    shop.sql("CREATE TABLE s.late (id int PRIMARY KEY DEFERRABLE)")
    shop.sql("CREATE TABLE s.other_key (id int PRIMARY KEY, code int NOT NULL UNIQUE)")
    shop.sql('CREATE TABLE s.twice (id int PRIMARY KEY, v int, "V" int)')
    shop.sql("CREATE TABLE s.computed (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    shop.sql("CREATE VIEW s.seen AS SELECT 1 AS id")
    good = table(shop, "good")
    expected = {
        shop.target("missing"): 'no table .*missing.*"source_table"',
        shop.target("keyless"): "no primary key .*mode upsert.*REPLICA IDENTITY FULL",
        shop.target("full_keyless"): "no primary key",
        shop.target("nothing"): "no replica identity; if it were published, the source would refuse",
        shop.target("late"): "deferrable one does not count",
        shop.target("other_key", key=["code"]): "has only id of a deleted row, not the key column 'code'",
        shop.target("twice"): "are named 'v' apart from case",
        shop.target("computed"): "'twice' is generated",
        shop.target("seen"): "is not a table",
    }
    refused = shop.run().refused
    assert set(refused) == set(expected)
    for name, pattern in expected.items():
        with pytest.raises(InputError, match=pattern) as caught:
            raise refused[name]
        assert caught.value.table == name
    assert shop.model.rows(good) == [(1, 0)]
    shop.sql("UPDATE s.keyless SET id = 1; UPDATE s.nothing SET id = 1")
    published = shop.sql(f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{shop.schema}'")
    assert published == [("good",)], "publishing a table without identity would break its writers"


def test_wrong_column_names_are_refused(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.a (id int PRIMARY KEY); CREATE TABLE s.b (id int PRIMARY KEY)")
    shop.sql("CREATE TABLE s.c (id int PRIMARY KEY); CREATE TABLE s.d (id int PRIMARY KEY)")
    shop.target("a", exclude_columns=["secret"])
    shop.target("b", columns={"nowhere": "string"})
    shop.target("c", columns={"id": "strnig"})
    shop.target("d", key=["nr"])
    named = ("'secret'", "'nowhere'", "'strnig'", "'nr'")
    messages = [str(error) for error in shop.start().values()]
    assert [name in message for name, message in zip(named, messages, strict=True)] == [True] * 4


def test_an_index_can_be_the_identity(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (a int NOT NULL, b int NOT NULL, v text NOT NULL)")
    shop.sql("CREATE UNIQUE INDEX t_ab ON s.t (b, a) INCLUDE (v)")
    shop.sql("ALTER TABLE s.t REPLICA IDENTITY USING INDEX t_ab")
    shop.sql("INSERT INTO s.t VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z')")
    name = shop.target("t")
    shop.run()
    shop.sql("DELETE FROM s.t WHERE a = 1; UPDATE s.t SET b = 5 WHERE a = 2; UPDATE s.t SET v = 'w' WHERE a = 3")
    shop.run()
    assert shop.model.batches[0][0].key == ("b", "a")
    assert shop.model.rows(name) == [(2, 5, "y"), (3, 3, "w")]


def test_included_columns_are_not_part_of_the_primary_key(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int, x text, n int, PRIMARY KEY (id) INCLUDE (x))")
    shop.sql("INSERT INTO s.t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    name = shop.target("t")
    shop.run()
    shop.sql("UPDATE s.t SET x = 'A' WHERE id = 1; UPDATE s.t SET n = 20 WHERE id = 2; DELETE FROM s.t WHERE id = 3")
    shop.run()
    assert shop.model.batches[0][0].key == ("id",)
    assert shop.model.rows(name) == [(1, "A", 1), (2, "b", 20)]


def test_a_second_run_is_a_conflict(shop: Shop) -> None:
    table(shop)
    first = shop.open()
    first.start({}, {})
    with pytest.raises(ConflictError, match="Another run is reading the slot"):
        shop.start()
    first.close()
    assert shop.start() == {}


def test_positions_outside_the_log_are_refused(shop: Shop) -> None:
    name, good = table(shop), table(shop, "good")
    shop.run()
    position = shop.model.positions[name]
    assert position is not None
    shop.model.positions[name] = replace(position, identity="4711:1")
    with pytest.raises(InputError, match="belongs to the log of 4711:1") as caught:
        shop.start()
    assert caught.value.table == name
    shop.model.positions[name] = position
    move(shop, name, lsn="0/1000")
    refused = shop.start()
    assert set(refused) == {name}
    assert "no longer has the log between 0/1000 and" in str(refused[name]) and "a full load is needed" in str(
        refused[name]
    )
    move(shop, name, lsn="FFFFFF/0")
    assert "the source was restored" in str(shop.start()[name])
    assert good not in shop.start()
    shop.model.positions[name] = position
    shop.sql(f"ALTER PUBLICATION {shop.schema} DROP TABLE s.t")
    assert "lost" in str(shop.start()[name]) and "a full load is needed" in str(shop.start()[name])
    shop.sql("DROP TABLE s.good; CREATE TABLE s.good (id int PRIMARY KEY, v int)")
    assert "was dropped and recreated" in str(shop.start()[good])


def test_a_dropped_slot_stops_the_run(shop: Shop) -> None:
    table(shop)
    shop.run()
    shop.sql(f"SELECT pg_drop_replication_slot('{shop.schema}')")
    with pytest.raises(InputError, match="no longer has the slot.*reload the tables"):
        shop.start()


def test_a_dropped_publication_stops_the_run(shop: Shop) -> None:
    table(shop)
    shop.run()
    shop.sql(f"DROP PUBLICATION {shop.schema}")
    with pytest.raises(InputError, match="no longer has the publication"):
        shop.start()


def test_a_publication_that_hides_something_is_refused(shop: Shop) -> None:
    name, other = table(shop), table(shop, "other")
    shop.sql(f"CREATE PUBLICATION {shop.schema} FOR TABLE s.t WHERE (id > 5), s.other (id) WITH (publish = 'insert')")
    with pytest.raises(InputError, match="leaves out kinds of changes.*ALTER PUBLICATION"):
        shop.start()
    every = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
    shop.sql(f"ALTER PUBLICATION {shop.schema} SET ({every})")
    refused = shop.start()
    assert "only rows with" in str(refused[name]) and "not the column 'v'" in str(refused[other])


def test_a_slot_of_another_owner_is_left_alone(shop: Shop) -> None:
    table(shop)
    shop.sql(f"SELECT pg_create_physical_replication_slot('{shop.schema}')")
    with pytest.raises(InputError, match="lakecdc did not create"):
        shop.start()


def test_an_idle_transaction_does_not_block_a_full_load_forever(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table(shop)
    monkeypatch.setattr(slots, "_TRANSACTION_SECONDS", 1)
    where = address(cast(PostgresSource, shop.spec().source))
    with psycopg.connect(shop.server.dsn, application_name="forgotten") as idle, connect(where) as session:
        idle.execute("SELECT txid_current()")
        reason = f"server process {idle.info.backend_pid} .*'forgotten', idle in transaction, since 20"
        with pytest.raises(SourceUnavailableError, match=reason):
            shop.start()
        with pytest.raises(SourceUnavailableError, match=reason), slots.bounded_wait(where, session, shop.schema):
            session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (shop.schema,))
    assert shop.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{shop.schema}'") == []
    assert shop.start() == {}


def test_nothing_is_created_without_the_option(shop: Shop) -> None:
    table(shop)
    with pytest.raises(InputError, match=r"has no slot .*postgres_slot\.py create"):
        shop.start(create=False)
    assert shop.sql(f"SELECT * FROM pg_publication WHERE pubname = '{shop.schema}'") == []


def test_missing_rights_are_reported(shop: Shop) -> None:
    table(shop)
    shop.sql("CREATE USER guest; GRANT USAGE ON SCHEMA s.x TO guest".replace("s.x", shop.schema))
    with pytest.raises(InputError, match="CREATE on the database"):
        shop.start(dsn=f"host=127.0.0.1 port={shop.server.port} user=guest dbname=postgres")
    shop.sql(f"REVOKE ALL ON SCHEMA {shop.schema} FROM guest; DROP USER guest")


def test_rows_hidden_by_a_policy_refuse_the_table(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, own boolean)")
    shop.sql("INSERT INTO s.t VALUES (1, true), (2, false)")
    shop.sql("ALTER TABLE s.t ENABLE ROW LEVEL SECURITY")
    shop.sql("CREATE POLICY mine ON s.t USING (own)")
    shop.sql(f"CREATE ROLE reader_{shop.schema} LOGIN REPLICATION")
    shop.sql(f"GRANT USAGE ON SCHEMA {shop.schema} TO reader_{shop.schema}")
    shop.sql(f"GRANT SELECT ON s.t TO reader_{shop.schema}")
    shop.sql(f"CREATE PUBLICATION {shop.schema} FOR TABLE s.t WITH (publish_via_partition_root)")
    name = shop.target("t")
    dsn = shop.server.dsn.replace("user=postgres", f"user=reader_{shop.schema}")
    assert "hides rows" in str(shop.run(dsn=dsn).refused[name])
    shop.sql(f"ALTER ROLE reader_{shop.schema} BYPASSRLS")
    assert not shop.run(dsn=dsn).refused
    assert len(shop.model.tables[name]) == 2
    shop.sql(f"DROP OWNED BY reader_{shop.schema}; DROP ROLE reader_{shop.schema}")


def test_a_dry_run_creates_nothing_at_the_source(shop: Shop) -> None:
    name = table(shop, rows=10)
    shop.run(rounds=1, dry_run=True)
    assert shop.model.rows(name) == [(i, 0) for i in range(1, 11)]
    assert shop.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{shop.schema}'") == []
    assert shop.sql(f"SELECT 1 FROM pg_publication WHERE pubname = '{shop.schema}'") == []


def test_logical_decoding_must_be_enabled(shop: Shop) -> None:
    with psycopg.connect(shop.server.dsn, autocommit=True) as session:
        slots.check_server(session)
        session.execute("CREATE SCHEMA IF NOT EXISTS shadow")
        returns = "RETURNS text LANGUAGE sql AS $$SELECT 'replica'$$"
        session.execute(f"CREATE FUNCTION shadow.current_setting(text) {returns}".encode())
        session.execute("SET search_path = shadow, pg_catalog")
        with pytest.raises(InputError, match="wal_level = replica.*ALTER SYSTEM"):
            slots.check_server(session)
        session.execute("DROP SCHEMA shadow CASCADE")
