"""Connections of type postgres become libpq strings, those of type mysql settings of the source."""

from __future__ import annotations

import configparser
import json
from typing import Any

import psycopg
import pytest
from airflow.sdk import Connection

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.source import conninfo, mysql_address, placeholder_address, source_from_connection
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.mysql import MysqlSource
from local_services.paths import REPOSITORY


def described(**fields: Any) -> Connection:
    extra = json.dumps(fields.pop("extra", {}))
    return Connection(conn_id="db", conn_type="postgres", extra=extra, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "/tmp/my sockets", "login": "o'brien", "schema": "a\\b"},
        {"host": "h", "port": 5433, "login": "u", "schema": "d"},
        {"host": "h", "extra": {"sslmode": "verify-full", "connect_timeout": 3}},
    ],
)
def test_libpq_parses_the_settings_of_the_connection(fields: dict[str, Any]) -> None:
    read = psycopg.conninfo.conninfo_to_dict(conninfo(described(**fields)))
    expected = {"host": fields.get("host"), "port": fields.get("port"), "user": fields.get("login")}
    expected |= {"dbname": fields.get("schema"), **fields.get("extra", {})}
    assert {key: str(value) for key, value in read.items()} == {k: str(v) for k, v in expected.items() if v is not None}


def test_passwords_and_settings_unknown_to_libpq_are_omitted() -> None:
    text = conninfo(
        described(host="h", password="pw", extra={"sslpassword": "pw2", "cursor": "dictcursor", "iam": True})
    )
    assert text == "host=h"


def mysql(**fields: Any) -> Connection:
    extra = json.dumps(fields.pop("extra", {}))
    return Connection(conn_id="db", conn_type="mysql", extra=extra, **fields)


def test_a_mysql_connection_becomes_settings_of_the_source() -> None:
    files = {"ca": "/ca.pem", "cert": "/c.pem", "key": "/k.pem"}
    connection = mysql(host="h", port=3307, login="u", password="pw", schema="shop", extra={"ssl": files})
    assert mysql_address(connection) == {
        "host": "h", "port": 3307, "user": "u", "database": "shop", "ssl": "verify_ca", "ssl_ca": "/ca.pem",
        "ssl_cert": "/c.pem", "ssl_key": "/k.pem",
    }  # fmt: skip
    assert mysql_address(mysql(host="h", extra={"ssl_mode": "VERIFY_IDENTITY"}))["ssl"] == "verify_identity"
    assert mysql_address(mysql(host="h", login="u")) == {"host": "h", "user": "u", "ssl": "disabled"}
    document = {**mysql_address(mysql(host="h", login="u")), "type": "mysql"}
    assert parse_source(document, ()) == MysqlSource(host="h", user="u")
    with pytest.raises(JobBadInputError, match="ssl_mode 'sometimes'"):
        mysql_address(mysql(host="h", extra={"ssl_mode": "sometimes"}))


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"conn_type": "postgres", "host": "h", "schema": "shop"}, "jdbc:postgresql://h:5432/shop"),
        (
            {"conn_type": "postgres", "host": "h", "port": 6432, "schema": "a b", "extra": {"sslmode": "require"}},
            "jdbc:postgresql://h:6432/a%20b?sslmode=require",
        ),
        (
            {"conn_type": "mysql", "host": "h", "schema": "shop", "extra": {"ssl_mode": "required"}},
            "jdbc:mysql://h:3306/shop?sslMode=REQUIRED",
        ),
        ({"conn_type": "sqlite", "host": "/data/shop.db"}, "jdbc:sqlite:/data/shop.db"),
        ({"conn_type": "jdbc", "host": "jdbc:mysql://h/shop"}, "jdbc:mysql://h/shop"),
    ],
)
def test_a_jdbc_source_uses_the_connection_of_a_database(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], url: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({**fields, "login": "me", "password": "hush"}))
    source, secrets = source_from_connection({"type": "jdbc", "cursor_column": "changed"}, "shop")
    parsed = parse_source(source, ())
    assert isinstance(parsed, JdbcSource)
    assert (parsed.url, parsed.user, list(secrets.values.values())) == (url, "me", ["hush"])
    assert parse_source({"type": "jdbc", "cursor_column": "c", **placeholder_address("jdbc")}, ())
    with pytest.raises(JobBadInputError, match="Both the source and source_conn_id=.* set url"):
        source_from_connection({"type": "jdbc", "url": "jdbc:mysql://h/s"}, "shop")


def test_the_password_is_passed_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "mysql", "host": "h", "password": "hush"}))
    source, secrets = source_from_connection({"type": "mysql", "chunk_rows": 5}, "shop")
    assert "hush" not in json.dumps(source) and source["password"] == {"env": next(iter(secrets.values))}
    assert source["chunk_rows"] == 5
    with pytest.raises(JobBadInputError, match="Both the source and source_conn_id='.*' set host"):
        source_from_connection({"type": "mysql", "host": "other"}, "shop")
    with pytest.raises(JobBadInputError, match="'postgres' cannot use the connection 'shop' of type 'mysql'"):
        source_from_connection({"type": "postgres"}, "shop")


@pytest.mark.parametrize("kind", ["postgres", "mysql", "kafka"])
def test_a_connection_of_another_type_names_the_package_of_the_right_one(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "generic", "host": "h"}))
    with pytest.raises(JobBadInputError) as error:
        source_from_connection({"type": kind}, "shop")
    assert f"pip install 'airflow-provider-lakecdc[{kind}]'" in str(error.value)
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    assert f"-{kind}>=" in setup["options.extras_require"][kind]
