"""Connections of type postgres as libpq strings."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from airflow.sdk import Connection

from airflow_provider_lakecdc.hooks.source import conninfo


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
def test_libpq_reads_back_what_the_connection_says(fields: dict[str, Any]) -> None:
    read = psycopg.conninfo.conninfo_to_dict(conninfo(described(**fields)))
    expected = {"host": fields.get("host"), "port": fields.get("port"), "user": fields.get("login")}
    expected |= {"dbname": fields.get("schema"), **fields.get("extra", {})}
    assert {key: str(value) for key, value in read.items()} == {k: str(v) for k, v in expected.items() if v is not None}


def test_passwords_and_what_is_not_libpqs_stay_out() -> None:
    text = conninfo(
        described(host="h", password="pw", extra={"sslpassword": "pw2", "cursor": "dictcursor", "iam": True})
    )
    assert text == "host=h"
