"""The command ``serve``: rights of clients, and the source of their token."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Thread

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.schema import Schema

from airflow_provider_lakecdc.cli.running import EXIT_CODES
from lakecdc.object_store.endpoint import Endpoint
from lakecdc.object_store.proof import _proven
from lakecdc.object_store.pyiceberg_catalog import ObjectStoreCatalog
from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc

TOKEN = "a-token-of-the-clients"
SERVE = ("serve", "--catalog", "bare", "--port", "0")


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a catalog with one table, as the connection ``bare``."""
    location = (tmp_path / "lake").as_uri()
    here = ObjectStoreCatalog("bare", warehouse=location)
    here.create_namespace("shop")
    here.create_table("shop.orders", Schema())
    connection = {"conn_type": "iceberg", "extra": {"type": "object_store", "warehouse": location}}
    monkeypatch.setenv("AIRFLOW_CONN_BARE", json.dumps(connection))
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    return location


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, str]]:
    """Let a client connect to each server, then stop it; record whether it could write, and the token."""
    clients: list[tuple[bool, str]] = []
    forever = Endpoint.serve

    def serve(endpoint: Endpoint) -> None:
        Thread(target=forever, args=(endpoint,), daemon=True).start()
        rest = RestCatalog("lake", uri=endpoint.uri, token=endpoint.token)
        assert rest.load_table("shop.orders").name() == ("shop", "orders")
        with pytest.raises(UnauthorizedError):
            RestCatalog("lake", uri=endpoint.uri, token="another one")
        try:
            rest.create_namespace("crm")
            clients.append((True, endpoint.token))
        except NotImplementedError:
            clients.append((False, endpoint.token))
        rest.close()
        endpoint.stop()

    monkeypatch.setattr(Endpoint, "serve", serve)
    return clients


def test_it_only_reads_by_default(lakecdc: Lakecdc, served: list[tuple[bool, str]], tmp_path: Path) -> None:
    for path in list(tmp_path.rglob("version-hint.text")) + list(tmp_path.rglob("store.json")):
        path.unlink()
    _proven.clear()
    files = sorted(tmp_path.rglob("*"))
    ended = lakecdc(*SERVE, "--token-env", "LAKE_TOKEN")
    assert ended.code == 0 and "for reads on http://127.0.0.1:" in ended.out
    assert TOKEN not in ended.out + ended.err and served == [(False, TOKEN)]
    assert sorted(tmp_path.rglob("*")) == files, "a proof of the store or a hint was written"


def test_it_writes_with_a_token_from_a_file(lakecdc: Lakecdc, served: list[tuple[bool, str]], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    ended = lakecdc(*SERVE, "--token-file", str(file), "--write", "--json")
    assert ended.document.keys() == {"uri", "writable"} and served == [(True, TOKEN)]


def test_a_generated_token_is_shown_only_on_a_terminal(
    lakecdc: Lakecdc, served: list[tuple[bool, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = lakecdc(*SERVE)
    assert refused.code == EXIT_CODES["bad input"] and "--token-env" in refused.err and not served
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    ended = lakecdc(*SERVE)
    ((_, token),) = served
    assert ended.code == 0 and len(token) > 40 and ended.out.count(token) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--token-env", "LAKE_TOKEN", "--host", "0.0.0.0"), "without TLS"),
        (("--token-env", "NO_SUCH"), "NO_SUCH"),
        (("--token-env", "LAKE_TOKEN", "--token-file", "x"), "Both"),
        (("--token-env", "LAKE_TOKEN", "--certificate", "/none.pem"), "certificate"),
        (("--token-env", "LAKE_TOKEN", "--catalog", "lake"), "only object_store can be served"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_invalid_options_are_refused(lakecdc: Lakecdc, options: tuple[str, ...], message: str) -> None:
    ended = lakecdc(*SERVE, *options)
    assert ended.code == EXIT_CODES["bad input"] and message in ended.err
    assert TOKEN not in ended.out + ended.err
