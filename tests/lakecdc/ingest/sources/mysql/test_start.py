"""What a run refuses before anything is written, or when the log tells of it, and what it says then."""

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
from lakecdc.ingest.sources.mysql.server import check_settings, merged_gtid
from local_services.process import free_port

from .conftest import Shop

pytestmark = pytest.mark.services


def table(shop: Shop, name: str = "t", rows: int = 1) -> str:
    """A table with a key, and its target."""
    shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int)")
    shop.sql(f"INSERT INTO s.{name} SELECT seq, 0 FROM seq_1_to_{rows}")
    return shop.target(name)


def move(shop: Shop, name: str, **offsets: Any) -> None:
    """Change a table's position."""
    position = shop.model.positions[name]
    assert position is not None
    shop.model.positions[name] = replace(position, offsets={**position.offsets, **offsets})


@contextmanager
def setting(shop: Shop, name: str, value: str, then: str) -> Iterator[None]:
    """A global setting, for the sessions that begin meanwhile."""
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
    assert "hush" not in str(caught.value) + repr(shop.open(password={"env": "PASSWORD_OF_TEST"})._where)


def test_a_wrong_password_and_missing_rights_are_explained(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table(shop)
    shop.sql("CREATE USER poor@'%' IDENTIFIED BY 'right'", "GRANT SELECT ON s.* TO poor@'%'")
    monkeypatch.setenv("PASSWORD_OF_TEST", "wrong")
    with pytest.raises(SourceUnavailableError, match="Access denied"):
        shop.start(user="poor", password={"env": "PASSWORD_OF_TEST"})
    monkeypatch.setenv("PASSWORD_OF_TEST", "right")
    with pytest.raises(InputError, match="BINLOG MONITOR"):
        shop.run(user="poor", password={"env": "PASSWORD_OF_TEST"})
    shop.sql("DROP USER poor@'%'")


def test_encryption_that_the_server_does_not_speak(shop: Shop) -> None:
    table(shop)
    with pytest.raises(SourceUnavailableError, match="SSL"):
        shop.start(ssl="required")


@pytest.mark.parametrize(
    ("name", "value", "then", "why"),
    [
        ("binlog_format", "MIXED", "ROW", "does not tell the rows"),
        ("binlog_row_image", "MINIMAL", "FULL", "leaves out columns"),
        ("log_bin_compress", "ON", "OFF", "compressed"),
    ],
)
def test_settings_under_which_the_log_is_no_use(shop: Shop, name: str, value: str, then: str, why: str) -> None:
    table(shop)
    with setting(shop, name, value, then), pytest.raises(InputError, match=f"{name} = {value}.*{why}.*SET GLOBAL"):
        shop.start()


def test_a_server_without_a_log() -> None:
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
        shop.target("old"): "kept by MyISAM.*ENGINE = InnoDB",
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


def test_another_server_stops_the_run(shop: Shop) -> None:
    name = table(shop)
    shop.run()
    position = shop.model.positions[name]
    assert position is not None and position.identity == "mariadb:1:0"
    shop.model.positions[name] = replace(position, identity="mariadb:2:0")
    with pytest.raises(InputError, match="belongs to the log of mariadb:2:0.*is mariadb:1:0") as caught:
        shop.start()
    assert caught.value.table == name


def test_a_purged_log_needs_a_full_load(shop: Shop) -> None:
    name, good = table(shop), table(shop, "good")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (9, 9)", "FLUSH BINARY LOGS")
    shop.run(failing=name)
    stands = shop.model.positions[good]
    assert stands is not None
    deadline = time.monotonic() + 30
    # the server keeps a file until the engine has let go of it
    while shop.sql("SHOW BINARY LOGS")[0][0] < stands.offsets["file"]:
        assert time.monotonic() < deadline
        shop.sql(f"PURGE BINARY LOGS TO '{stands.offsets['file']}'")
        time.sleep(0.1)
    refused = shop.start()
    assert set(refused) == {name}
    assert "is gone from the source (purged" in str(refused[name]) and "a full load is needed" in str(refused[name])


def test_a_log_that_was_reset_or_restored_is_found(shop: Shop) -> None:
    name = table(shop)
    shop.run()
    move(shop, name, pos=2**31)
    assert "ends before the table's position" in str(shop.start()[name])
    shop.model.positions.clear()
    shop.model.tables.clear()
    shop.run()
    move(shop, name, gtid="0-1-4711")
    assert "not 0-1-4711: it was reset or restored" in str(shop.start()[name])


def test_transaction_identifiers_are_kept_by_domain() -> None:
    assert merged_gtid("0-1-5,1-1-7", "0-1-9") == "0-1-9,1-1-7"
    assert merged_gtid("", "0-1-9") == "0-1-9" and merged_gtid("0-1-9", "") == "0-1-9"
    assert merged_gtid("uuid:4", "uuid:9") == "uuid:9"


@pytest.mark.parametrize(
    ("statements", "pattern"),
    [
        (["DROP TABLE s.t", "CREATE TABLE s.t (id int PRIMARY KEY, v int)"], "was dropped"),
        (["RENAME TABLE s.t TO s.t2, s.t2 TO s.t"], "was renamed"),
        (["CREATE TABLE s.n LIKE s.t", "RENAME TABLE s.t TO s.t2, s.n TO s.t"], "renamed"),
        (["CREATE OR REPLACE TABLE s.t (id int PRIMARY KEY)"], "was made anew"),
        (["ALTER TABLE s.t RENAME COLUMN v TO w"], "renamed the column 'v', and what its columns were before is not"),
        (["ALTER TABLE s.t ADD u varchar(40) DEFAULT uuid()"], "'u' was added .* with a default that is computed"),
        (["SET binlog_format = STATEMENT", "UPDATE s.t SET v = 5"], "logged UPDATE statement"),
        (["SET binlog_row_image = MINIMAL", "UPDATE s.t SET v = 5"], "not whole"),
        (["XA START 'x'", "UPDATE s.t SET v = 6", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"], "XA transaction"),
    ],
)
def test_what_only_a_full_load_can_mend_stops_its_table(shop: Shop, statements: list[str], pattern: str) -> None:
    name, good = table(shop), table(shop, "good")
    shop.run()
    shop.sql("INSERT INTO s.t VALUES (5, 5)")
    shop.sql(*statements)
    shop.sql("INSERT INTO s.good VALUES (5, 5)")
    found = shop.run()
    assert set(found.refused) == {name}, found.refused
    assert re.search(f"{pattern}.*full load", str(found.refused[name])), found.refused
    assert shop.model.rows(good) == [(1, 0), (5, 5)], "the other table goes on"


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
