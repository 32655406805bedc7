"""What a run refuses before any write, or on reading the log, and the reasons it gives."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from lakecdc.contract.errors import InputError, SourceUnavailableError, SpecError
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.sources.mysql.log_server import source_tables
from lakecdc.ingest.sources.mysql.server import check_settings
from local_services.mysql import MySQL
from local_services.process import free_port
from tests.lakecdc.ingest.sources.model import move

from .conftest import Shop, both, only_mysql

pytestmark = pytest.mark.services


def table(shop: Shop, name: str = "t", rows: int = 1) -> str:
    """Create a table with a key, and its target."""
    shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int)")
    shop.sql(f"INSERT INTO s.{name} SELECT seq, 0 FROM seq_1_to_{rows}")
    return shop.target(name)


@contextmanager
def setting(shop: Shop, name: str, value: str, then: str) -> Iterator[None]:
    """Change a global setting for sessions that begin meanwhile."""
    shop.sql(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        shop.sql(f"SET GLOBAL {name} = {then}")


def test_an_unreachable_server_is_named_without_its_password(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_TEST", "hush-hush")
    shop.target("t")
    port = free_port()
    with pytest.raises(SourceUnavailableError, match=f"127.0.0.1:{port} cannot be reached") as caught:
        shop.start(port=port, password={"env": "PASSWORD_OF_TEST"})
    assert "hush" not in str(caught.value) + repr(vars(shop.open(password={"env": "PASSWORD_OF_TEST"}).server))


@both
def test_a_wrong_password_and_missing_rights_are_explained(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = table(shop)
    shop.sql("CREATE USER poor@'%' IDENTIFIED BY 'right'", "GRANT SELECT ON s.* TO poor@'%'")
    monkeypatch.setenv("PASSWORD_OF_TEST", "wrong")
    with pytest.raises(InputError, match="refuses the login: Access denied"):
        shop.start(user="poor", password={"env": "PASSWORD_OF_TEST"})
    monkeypatch.setenv("PASSWORD_OF_TEST", "right")
    login: dict[str, Any] = {"user": "poor", "password": {"env": "PASSWORD_OF_TEST"}}
    if isinstance(shop.server, MySQL):
        with pytest.raises(InputError, match="BINLOG MONITOR"):
            shop.run(**login)
    else:
        # without a lock each table fails by itself
        assert "BINLOG MONITOR" in str(shop.run(**login).refused[name])
    shop.sql("DROP USER poor@'%'")


@both
def test_the_rights_that_the_page_asks_for_are_enough(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    mysql = isinstance(shop.server, MySQL)
    name = table(shop)
    rights = "REPLICATION CLIENT, RELOAD" if mysql else "BINLOG MONITOR"
    shop.sql("CREATE USER cdc@'%' IDENTIFIED BY 'p w'", f"GRANT REPLICATION SLAVE, {rights} ON *.* TO cdc@'%'")
    shop.sql("GRANT SELECT ON s.* TO cdc@'%'")
    monkeypatch.setenv("PASSWORD_OF_TEST", "p w")
    login: dict[str, Any] = {"user": "cdc", "password": {"env": "PASSWORD_OF_TEST"}}
    try:
        # MySQL encrypts the password by the server's public key, then by TLS
        shop.run(**login)
        shop.sql("INSERT INTO s.t VALUES (2, 2)", "FLUSH PRIVILEGES")
        shop.run(**login, ssl="required" if mysql else "disabled")
        if mysql:
            shop.start(**login, ssl="verify_ca", ssl_ca=str(shop.server.data_dir / "ca.pem"))
            with pytest.raises(SourceUnavailableError, match="certificate verify failed"):
                shop.start(**login, ssl="verify_identity", ssl_ca=str(shop.server.data_dir / "ca.pem"))
    finally:
        shop.sql("DROP USER cdc@'%'")
    assert shop.model.rows(name) == [(1, 0), (2, 2)]


def test_unsupported_encryption_is_reported(shop: Shop) -> None:
    table(shop)
    with pytest.raises(SourceUnavailableError, match="SSL"):
        shop.start(ssl="required")


@pytest.mark.parametrize(
    ("name", "value", "then", "why"),
    [
        ("binlog_format", "MIXED", "ROW", "lacks the rows"),
        ("binlog_row_image", "MINIMAL", "FULL", "leaves out columns"),
        ("log_bin_compress", "ON", "OFF", "compressed"),
    ],
)
def test_unusable_log_settings_are_refused(shop: Shop, name: str, value: str, then: str, why: str) -> None:
    table(shop)
    with setting(shop, name, value, then), pytest.raises(InputError, match=f"{name} = {value}.*{why}.*SET GLOBAL"):
        shop.start()


def test_a_server_without_a_log_is_refused() -> None:
    with pytest.raises(InputError, match="log_bin = OFF: it writes no binary log"):
        check_settings({"log_bin": "OFF", "version": "8.0.36"})
    check_settings({"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "full"})


def test_tables_that_cannot_be_fed_do_not_stop_the_others(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.keyless (id int)")
    shop.sql("CREATE TABLE s.old (id int PRIMARY KEY) ENGINE = MyISAM")
    shop.sql("CREATE VIEW s.seen AS SELECT 1 AS id")
    shop.sql("CREATE TABLE s.versioned (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
    good = table(shop, "good")
    shop.sql("CREATE TABLE s.child (id int PRIMARY KEY, good int REFERENCES good (id) ON DELETE CASCADE)")
    expected = {
        shop.target("missing"): 'no table .*missing.*"source_table"',
        shop.target("keyless"): "no primary key .*mode upsert .*mode append or history",
        shop.target("old"): "uses the engine MyISAM.*ENGINE = InnoDB",
        shop.target("seen"): "is not an ordinary table",
        shop.target("versioned"): "is not an ordinary table",
        shop.target("child"): "ON DELETE CASCADE.*allow_cascades",
        shop.target("twin", source_table=f"{shop.schema}.good"): f"already feeds {good}",
    }
    refused = shop.run().refused
    assert set(refused) == set(expected)
    for name, pattern in expected.items():
        with pytest.raises(InputError, match=pattern) as caught:
            raise refused[name]
        assert caught.value.table == name
    assert shop.model.rows(good) == [(1, 0)]
    # a pattern matches it too, so the report mentions it
    assert {f"{shop.schema}.versioned"} == {*source_tables(shop.lake.spark, shop.spec())} & {
        f"{shop.schema}.{name}" for name in ("versioned", "seen")
    }
    assert f"{shop.schema}.child" not in shop.start(allow_cascades=True)


def test_wrong_column_names_are_refused(shop: Shop) -> None:
    for name in "abcd":
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY)")
    shop.target("a", exclude_columns=["secret"])
    shop.target("b", columns={"nowhere": "string"})
    shop.target("c", columns={"id": "strnig"})
    shop.target("d", key=["nr"])
    messages = [str(error) for error in shop.start().values()]
    named = ("'secret'", "'nowhere'", "'strnig'", "'nr'")
    assert [name in message for name, message in zip(named, messages, strict=True)] == [True] * 4


def test_numbers_out_of_range_are_refused(shop: Shop) -> None:
    shop.target("t")
    with pytest.raises(SpecError, match="source.chunk_rows is 0"):
        shop.spec(chunk_rows=0)
    with pytest.raises(SpecError, match="literal"):
        shop.spec(password="hush")
    assert parse_spec(shop.lake.spec("ingest", source={"type": "mysql", "host": "h", "user": "u"}, target=shop.targets))


@both
def test_another_server_stops_the_run(shop: Shop) -> None:
    name = table(shop)
    shop.run()
    mysql = isinstance(shop.server, MySQL)
    own = f"mysql:{shop.sql('SELECT @@server_uuid')[0][0]}" if mysql else "mariadb:1:0"
    position = shop.model.positions[name]
    assert position is not None and position.identity == own
    shop.model.positions[name] = replace(position, identity="mariadb:2:0")
    with pytest.raises(InputError, match=f"belongs to the log of mariadb:2:0.*is {own}") as caught:
        shop.start()
    assert caught.value.table == name


@both
def test_a_purged_log_needs_a_full_load(shop: Shop) -> None:
    name, good = table(shop), table(shop, "good")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (9, 9)", "FLUSH BINARY LOGS")
    # a failing table is parked; one outside the run is not
    targets, shop.targets = shop.targets, [target for target in shop.targets if target["table"] == good]
    shop.run()
    shop.targets = targets
    position = shop.model.positions[good]
    assert position is not None
    deadline = time.monotonic() + 30
    # the server keeps a file until the engine releases it
    while shop.sql("SHOW BINARY LOGS")[0][0] < position.offsets["file"]:
        assert time.monotonic() < deadline
        shop.sql(f"PURGE BINARY LOGS TO '{position.offsets['file']}'")
        time.sleep(0.1)
    refused = shop.start()
    assert set(refused) == {name}
    assert "(it was purged" in str(refused[name]) and "a full load is needed" in str(refused[name])


def test_a_reset_or_restored_log_is_detected(shop: Shop) -> None:
    name = table(shop)
    shop.run()
    move(shop, name, pos=2**31)
    assert "ends before the table's position" in str(shop.start()[name])
    shop.model.positions.clear()
    shop.model.tables.clear()
    shop.run()
    move(shop, name, gtid="0-1-4711")
    assert "not 0-1-4711: it was reset or restored" in str(shop.start()[name])


@both
def test_a_restarted_log_does_not_continue_the_old_one(shop: Shop) -> None:
    reset = "RESET BINARY LOGS AND GTIDS" if isinstance(shop.server, MySQL) else "RESET MASTER"
    shop.sql(reset)
    name = table(shop)
    shop.run()
    position = shop.model.positions[name]
    assert position is not None and position.offsets["file"].endswith("000001")
    # log files record whole seconds
    shop.sql("DO SLEEP(1.1)", reset, *["INSERT INTO s.t VALUES (2, 0)", "DELETE FROM s.t WHERE id = 2"] * 40)
    assert re.search("(its log was reset|it was reset or restored): a full load", str(shop.start()[name]))


@pytest.mark.soak
@only_mysql
def test_every_kind_of_transaction_identifier_is_read(shop: Shop) -> None:
    name = table(shop)
    shop.run()
    first = shop.model.positions[name]
    own = shop.sql("SELECT @@server_uuid")[0][0]
    assert first is not None and first.offsets["gtid"].startswith(f"{own}:1-")
    other = "11111111-2222-3333-4444-555555555555"
    for number, (tag, expected) in enumerate(
        [
            ("AUTOMATIC:lake_1", f"{own}:lake_1:1"),
            (f"{other}:ship:9223372036854775000", f"{other}:ship:9223372036854775000"),
            (f"{other}:{'x' * 32}:7", f"{other}:{'x' * 32}:7"),
            (f"{other}:300", f"{other}:300"),
        ],
        2,
    ):
        shop.sql(f"SET gtid_next = '{tag}'", f"INSERT INTO s.t VALUES ({number}, 0)", "SET gtid_next = 'AUTOMATIC'")
        shop.run()
        position = shop.model.positions[name]
        assert position is not None and position.offsets["gtid"] == expected
    assert len(shop.model.rows(name)) == 5 and not shop.start()
    move(shop, name, gtid=f"{other}:ship:9")
    assert f"not {other}:ship:9: it was reset or restored" in str(shop.start()[name])


def test_changes_that_need_a_full_load_stop_their_table(shop: Shop) -> None:
    statements = {
        "dropped": (["DROP TABLE s.dropped", "CREATE TABLE s.dropped (id int PRIMARY KEY, v int)"], "was dropped"),
        "renamed": (["RENAME TABLE s.renamed TO s.t2, s.t2 TO s.renamed"], "was renamed"),
        "swapped": (["CREATE TABLE s.n LIKE s.swapped", "RENAME TABLE s.swapped TO s.t3, s.n TO s.swapped"], "renamed"),
        "replaced": (["CREATE OR REPLACE TABLE s.replaced (id int PRIMARY KEY)"], "was recreated"),
        "w": (["ALTER TABLE s.w RENAME COLUMN v TO w"], "renamed the column 'v', and its columns before are unknown"),
        "c": (["ALTER TABLE s.c ADD u varchar(40) DEFAULT uuid()"], "'u' was added .* with a computed default"),
        "minimal": (["SET binlog_row_image = MINIMAL", "UPDATE s.minimal SET v = 5"], "not whole"),
        "x": (["XA START 'x'", "UPDATE s.x SET v = 6", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"], "XA trans"),
    }
    names, good = {name: table(shop, name) for name in statements}, table(shop, "good")
    shop.run()
    for name, (changes, _pattern) in statements.items():
        shop.sql(f"INSERT INTO s.{name} VALUES (5, 5)", *changes)
    shop.sql("INSERT INTO s.good VALUES (5, 5)")
    refused = shop.run().refused
    assert set(refused) == {*names.values()}, refused
    for name, (_changes, pattern) in statements.items():
        assert re.search(f"{pattern}.*full load", str(refused[names[name]])), refused[names[name]]
    assert shop.model.rows(good) == [(1, 0), (5, 5)], "the other table continues"


@both
def test_a_logged_statement_stops_every_table_it_may_have_changed(shop: Shop) -> None:
    names = {table(shop), table(shop, "other")}
    body = "BEGIN INSERT INTO s.t VALUES (n, 1); RETURN n; END"
    shop.sql(f"CREATE FUNCTION s.f (n int) RETURNS int DETERMINISTIC MODIFIES SQL DATA {body}")
    shop.run()
    shop.sql("SET binlog_format = STATEMENT", "SELECT s.f(7)")
    refused = shop.run().refused
    assert set(refused) == names
    for error in refused.values():
        assert re.search("may have been changed by a logged SELECT statement.*full load", str(error))


def test_ddl_that_changes_rows_without_events_stops_its_table(shop: Shop) -> None:
    definitions = {
        "generated": ("int, g int AS (v * 2) STORED", "MODIFY g int AS (v * 100) STORED"),
        "nullable": ("int", "MODIFY v int NOT NULL"),
        "short": ("varchar(10)", "MODIFY v varchar(3)"),
        "signed": ("int", "MODIFY v int unsigned"),
        "member": ("enum('a', 'b')", "MODIFY v enum('b')"),
        "exact": ("datetime(6)", "MODIFY v datetime"),
        "versioned": ("int", "ADD SYSTEM VERSIONING"),
        "ignoring": ("int", "ADD UNIQUE (v)"),
    }
    values = {"nullable": "NULL", "short": "'abcdefgh'", "signed": "-5", "member": "'a'"}
    values |= {"exact": "'2026-01-02 03:04:05.678901'"}
    # a strict server does not report these either
    strict = ("generated", "exact", "versioned")
    names = {name: shop.target(name) for name in definitions}
    good = table(shop, "good")
    for name, (kind, _change) in definitions.items():
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v {kind})")
        shop.sql(f"INSERT INTO s.{name} (id, v) VALUES (1, {values.get(name, '5')}), (2, {values.get(name, '5')})")
    shop.run()
    for name, (_kind, change) in definitions.items():
        mode = "SET sql_mode = @@global.sql_mode" if name in strict else "SET sql_mode = ''"
        shop.sql(mode, f"ALTER {'IGNORE ' if name == 'ignoring' else ''}TABLE s.{name} {change}")
    shop.sql("UPDATE s.versioned SET v = 6 WHERE id = 1", "ALTER TABLE s.versioned DROP SYSTEM VERSIONING")
    shop.sql("ALTER TABLE s.good MODIFY v bigint COMMENT 'wider', ENGINE = InnoDB", "INSERT INTO s.good VALUES (5, 5)")
    refused = shop.run().refused
    assert set(refused) == {*names.values()}, refused
    assert all("a full load is needed" in str(error) for error in refused.values())
    assert shop.model.rows(good) == [(1, 0), (5, 5)]


@pytest.mark.soak
@only_mysql
def test_changes_that_need_a_full_load_stop_their_table_in_mysql(shop: Shop) -> None:
    statements = {
        "dropped": (["DROP TABLE s.dropped", "CREATE TABLE s.dropped (id int PRIMARY KEY, v int)"], "was dropped"),
        "renamed": (["RENAME TABLE s.renamed TO s.other, s.other TO s.renamed"], "was renamed"),
        "exchanged": (["ALTER TABLE s.exchanged EXCHANGE PARTITION p WITH TABLE s.good"], "EXCHANGE PARTITION"),
        "computed": (
            ["ALTER TABLE s.computed ADD u varchar(40) DEFAULT (concat(1 + 1))"],
            "'u' was added .* is computed",
        ),
        "minimal": (["SET binlog_row_image = MINIMAL", "UPDATE s.minimal SET v = 5"], "not whole"),
        "xa": (
            ["XA START 'x'", "UPDATE s.xa SET v = 6", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"],
            "XA trans",
        ),
    }
    names = {name: table(shop, name) for name in statements if name != "exchanged"}
    shop.sql("CREATE TABLE s.exchanged (id int PRIMARY KEY, v int) PARTITION BY RANGE (id) "
             "(PARTITION p VALUES LESS THAN (9))")  # fmt: skip
    names["exchanged"], good = shop.target("exchanged"), table(shop, "good")
    calm = table(shop, "calm")
    shop.run()
    for case in statements.values():
        shop.sql(*case[0])
    shop.sql("CREATE TABLE s.copy (PRIMARY KEY (id)) SELECT * FROM s.calm", "INSERT INTO s.calm VALUES (5, 5)")
    refused = shop.run().refused
    assert set(refused) == {*names.values(), good}, refused
    for name, (_changes, pattern) in statements.items():
        assert re.search(f"{pattern}.*full load", str(refused[names[name]])), refused[names[name]]
    assert shop.model.rows(calm) == [(1, 0), (5, 5)], "the other table continues"


@only_mysql
@pytest.mark.parametrize(
    ("name", "value", "then", "event"),
    [
        ("binlog_transaction_compression", "ON", "OFF", "compressed transactions"),
        ("binlog_row_value_options", "'PARTIAL_JSON'", "''", "partial JSON updates"),
    ],
)
def test_mysql_settings_that_omit_values_stop_the_run(shop: Shop, name: str, value: str, then: str, event: str) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v json)", "INSERT INTO s.t VALUES (1, json_object('a', 1, 'b', 2))")
    shop.target("t")
    shop.run()
    with setting(shop, name, value, then), pytest.raises(InputError, match=f"{name} = .*SET GLOBAL {name} = '"):
        shop.start()
    shop.sql(f"SET {name} = {value}", "UPDATE s.t SET v = json_set(v, '$.a', 3)")
    with pytest.raises(InputError, match=event):
        shop.run()


def test_a_transaction_above_the_limit_stops_the_run(shop: Shop) -> None:
    table(shop)
    shop.run()
    shop.sql("INSERT INTO s.t SELECT seq, 1 FROM seq_10_to_60")
    with pytest.raises(InputError, match="more than 50 row events"):
        shop.run(max_transaction_events=50)
    shop.run(max_transaction_events=51)


def test_compressed_events_stop_the_run(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.target("t")
    shop.run()
    with setting(shop, "log_bin_compress", "ON", "OFF"):
        shop.sql("INSERT INTO s.t VALUES (1, repeat('x', 1000))")
    with pytest.raises(InputError, match=r"compressed events \(log_bin_compress = ON\)"):
        shop.run()
