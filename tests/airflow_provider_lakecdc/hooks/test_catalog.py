"""Connections of type iceberg as catalogs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecdc.checks.catalog import findings
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.catalog import catalog_from_connection, get_catalog
from lakecdc.contract.secrets import refuse_literals
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.storage import Answer
from tests.airflow_provider_lakecdc.conftest import connection


def described(**fields: Any) -> Connection:
    import json

    extra = json.dumps(fields.pop("extra", {}))
    return Connection(**{"conn_id": "lake", "conn_type": "iceberg", "extra": extra, **fields})


def test_a_rest_catalog_takes_uri_and_credential_from_the_fields() -> None:
    catalog = catalog_from_connection(
        described(host="https://c.example.com/", login="me", password="pw", extra={"warehouse": "s3://b/w"})
    )
    assert catalog.name == "lake"
    assert catalog.properties == {
        "warehouse": "s3://b/w",
        "uri": "https://c.example.com",
        "type": "rest",
        "credential": "me:pw",
    }
    (variable,) = catalog.secrets.values
    assert variable.startswith("LAKECDC_SECRET_LAKE_CREDENTIAL_")
    assert catalog.references["credential"] == {"env": variable}
    assert catalog.secrets.values == {variable: "me:pw"}


def test_airflows_own_hook_opens_the_same_catalog(lake: dict[str, str]) -> None:
    from airflow.providers.apache.iceberg.hooks.iceberg import IcebergHook

    theirs = dict(IcebergHook("lake").catalog.properties)
    with_ours = get_catalog("lake").load()
    assert dict(with_ours.properties) == theirs
    with_ours.close()


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("s3.access-key-id", "AKIA1", False),
        ("s3.secret-access-key", "x", True),
        ("s3.session-token", "x", True),
        ("token", "x", True),
        ("header.Authorization", "Basic x", True),
        ("adls.account-key", "x", True),
        ("adls.connection-string", "AccountName=a;AccountKey=x", True),
        ("s3.sse.key", "x", True),
        ("auth", "{'type': 'basic', 'basic': {'password': 'x'}}", True),
        ("uri", "postgresql+psycopg2://u:p/w@h/d", True),
        ("uri", "postgresql+psycopg2://u:p@h/d", True),
        ("uri", "postgresql+psycopg2://u@h/d", False),
        ("s3.endpoint", "http://localhost:9000", False),
    ],
)
def test_secret_properties_are_recognized(key: str, value: str, secret: bool) -> None:
    catalog = catalog_from_connection(described(extra={"type": "sql", key: value}))
    assert (catalog.references[key] != value) is secret
    refuse_literals(catalog.references, "properties")
    assert value not in repr(catalog) or not secret


def test_two_properties_never_share_a_variable() -> None:
    first = catalog_from_connection(described(extra={"adls.sas-token.a.b": "1", "adls.sas-token.a_b": "2"}))
    other = catalog_from_connection(described(conn_id="lake_adls", extra={"sas-token.a.b": "3"}))
    for catalog in (first, other):
        named = {key: value for key, value in catalog.references.items() if "token" in key}
        values = {key: catalog.secrets.values[value["env"]] for key, value in named.items()}
        assert values == {key: catalog.properties[key] for key in named}
    assert not set(first.secrets.values) & set(other.secrets.values)


def test_the_extra_may_name_the_catalog() -> None:
    catalog = catalog_from_connection(described(conn_id="my-lake", extra={"catalog_name": "lake"}))
    assert catalog.name == "lake"
    assert "catalog_name" not in catalog.properties


def test_a_connection_id_unusable_as_catalog_name_is_refused_with_the_remedy() -> None:
    with pytest.raises(JobBadInputError, match="catalog_name"):
        catalog_from_connection(described(conn_id="my-lake"))


def test_another_type_of_connection_is_refused() -> None:
    with pytest.raises(JobBadInputError, match="'postgres', not 'iceberg'"):
        catalog_from_connection(described(conn_type="postgres"))


def test_switches_become_text_for_pyiceberg_and_are_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_from_connection(described(extra={"token-refresh-enabled": False, "s3.timeout": 5}))
    assert catalog.properties["token-refresh-enabled"] == "false"
    assert catalog.properties["s3.timeout"] == "5"
    masked: list[str] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    catalog.secrets.hide_from_logs()
    assert masked == []


def test_references_are_resolved_only_when_the_catalog_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    reference = {"env": "CATALOG_URI"}
    catalog = catalog_from_connection(described(extra={"type": "sql", "uri": reference}))
    assert catalog.references["uri"] == reference
    assert catalog.secrets.values == {}
    monkeypatch.setenv("CATALOG_URI", f"sqlite:///{tmp_path}/c.db")
    opened = catalog.load()
    assert opened.properties["uri"] == f"sqlite:///{tmp_path}/c.db"
    opened.close()


def test_an_object_store_is_opened_in_process_and_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extra = {"type": "object_store", "warehouse": f"file://{tmp_path}/lake", "catalog_name": "objects"}
    connection(monkeypatch, "objects", conn_type="iceberg", extra=extra)
    with closing(get_catalog("objects").load()) as opened:
        opened.create_namespace("shop")
        opened.create_table("shop.orders", Schema(NestedField(1, "id", LongType(), required=True)))
    checked = {each.check: each for each in findings("objects", ["shop"], ["shop.orders"])}
    assert {each.state for each in checked.values()} == {"ok"}, checked
    assert "a catalog of type object_store" in checked["catalog connection"].result
    assert "one of 16 creates at once wins" in checked["object store"].result
    # it is tested again, whatever was proven before
    monkeypatch.setattr(LocalStorage, "create", lambda *_: Answer.WRITTEN)
    (finding,) = [each for each in findings("objects", []) if each.check == "object store"]
    assert finding.state == "fail" and "created an object twice" in finding.result
