"""The endpoint over HTTP: routes, names of errors, tokens, TLS, and no answer that makes a client repeat a commit."""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from lakecdc.contract.errors import InputError, SourceUnavailableError, SpecError, UnsupportedError
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.endpoint import Endpoint, load_certificate
from tests.lakecdc.object_store.memory import Counting, MemoryStorage

COMMIT: dict[str, Any] = {"requirements": [], "updates": []}
TABLE = "/v1/namespaces/shop/tables/orders"


class Failing:
    """A catalog in which every method raises an error."""

    error: ClassVar[Exception]

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise self.error

        return fail


class Client:
    """A persistent connection."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None = None) -> None:
        address = urlsplit(endpoint.uri)
        assert address.hostname and address.port
        self._headers = {"Authorization": f"Bearer {endpoint.token}"}
        if context:
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.hostname, address.port, context=context, timeout=10
            )
        else:
            self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self._connection.request(method, path, sent, self._headers | headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode()

    def get(self, path: str) -> Any:
        status, text = self.send("GET", path)
        assert status == 200, text
        return json.loads(text)

    def refused(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Return status and type of an error, after checking its form against the specification."""
        status, text = self.send(method, path, body, **headers)
        error = json.loads(text)["error"]
        assert error["code"] == status and error["message"]
        return status, error["type"]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def catalog(storage: MemoryStorage) -> ObjectCatalog:
    shop = ObjectCatalog(storage, "s3://bucket/lake", Counting())
    shop.create_namespace(("shop",), {"owner": "ann"})
    shop.create_table(("shop",), {"name": "orders"})
    return shop


@pytest.fixture
def client(catalog: ObjectCatalog) -> Iterator[Client]:
    with Endpoint(catalog, writable=True) as endpoint:
        opened = Client(endpoint)
        yield opened
        opened.close()


def test_stored_metadata_is_returned_unchanged(client: Client, catalog: ObjectCatalog) -> None:
    commit = {"requirements": [{"type": "count", "value": 0}], "updates": [{"token": 7}]}
    for status, text in (client.send("POST", TABLE, commit), client.send("GET", f"{TABLE}?snapshots=refs")):
        stored = catalog.load(("shop", "orders"))
        assert status == 200 and text == f'{{"metadata-location": "{stored.location}", "metadata": {stored.text}}}'
    assert client.refused("POST", TABLE, commit) == (409, "CommitFailedException")


def test_supported_routes_are_listed_exactly(client: Client, catalog: ObjectCatalog) -> None:
    config = client.get("/v1/config?warehouse=lake")
    assert (config["defaults"], config["overrides"]) == ({}, {})
    assert len(config["endpoints"]) == len(set(config["endpoints"])) == 15
    assert not [each for each in config["endpoints"] if "view" in each or "transaction" in each]
    # each is a route: without a route the answer would be 406 or NotFoundException
    for each in config["endpoints"]:
        method, path = each.split()
        path = path.replace("{prefix}/", "").replace("{namespace}", "none").replace("{table}", "none")
        status, text = client.send(method, path, {} if method == "POST" else None)
        assert "NotFoundException" not in text and status != 406, each
    with Endpoint(catalog, writable=False) as reads:
        listed = Client(reads).get("/v1/config")["endpoints"]
        assert [each for each in listed if each.split()[0] not in ("GET", "HEAD")] == [
            "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"
        ]


@pytest.mark.parametrize("path", ["/v1/namespaces/shop/views/v", "/v1/elsewhere", "/", "/v1/namespaces//tables"])
def test_unknown_paths_are_not_found(client: Client, path: str) -> None:
    assert client.refused("GET", path) == (404, "NotFoundException")
    assert client.send("HEAD", path) == (404, "")
    assert client.refused("POST", path, {}) == (406, "UnsupportedOperationException")


def test_names_with_blanks_signs_and_levels_are_decoded(client: Client) -> None:
    assert client.send("POST", "/v1/namespaces", {"namespace": ["a b+c"]})[0] == 200
    assert client.send("POST", "/v1/namespaces", {"namespace": ["a b+c", "d/é.f"]})[0] == 200
    created = client.send("POST", "/v1/namespaces/a%20b%2Bc%1Fd%2F%C3%A9.f/tables", {"name": "x y", "schema": {}})
    assert created[0] == 200
    # as pyiceberg and as Java encode a blank
    for namespace, table in (("a%20b%2Bc", "x%20y"), ("a+b%2Bc", "x+y")):
        assert client.get(f"/v1/namespaces/{namespace}")["namespace"] == ["a b+c"]
        assert client.send("HEAD", f"/v1/namespaces/{namespace}%1Fd%2F%C3%A9.f/tables/{table}") == (204, "")
        assert client.get(f"/v1/namespaces?parent={namespace}")["namespaces"] == [["a b+c", "d/é.f"]]
    assert client.get("/v1/namespaces?parent=")["namespaces"] == [["a b+c"], ["shop"]]
    assert client.refused("GET", "/v1/namespaces?parent=none") == (404, "NoSuchNamespaceException")
    assert client.refused("GET", "/v1/namespaces/none/tables") == (404, "NoSuchNamespaceException")


def test_pages_follow_the_specification(client: Client, catalog: ObjectCatalog) -> None:
    for name in "ab", "cd", "ef", "gh":
        catalog.create_table(("shop",), {"name": name})
        catalog.create_namespace((name,), {})
    pages, token = [], ""
    while token is not None:
        answer = client.get(f"/v1/namespaces/shop/tables?pageSize=2&pageToken={token}")
        pages.append([each["name"] for each in answer["identifiers"]])
        token = answer["next-page-token"]
        # concurrent changes do not shift pages
        if len(pages) == 1:
            catalog.drop_table(("shop", "ab"))
    assert pages == [["ab", "cd"], ["ef", "gh"], ["orders"]]
    everything = client.get("/v1/namespaces?pageSize=2")
    assert len(everything["namespaces"]) == 5 and everything["next-page-token"] is None
    first = client.get("/v1/namespaces?pageSize=3&pageToken=")
    assert first == {"namespaces": [["ab"], ["cd"], ["ef"]], "next-page-token": "ef"}
    for size in "0", "-1", "two", "²":
        path = f"/v1/namespaces?pageToken=&pageSize={size.encode().decode('latin-1') if size.isascii() else '%C2%B2'}"
        assert client.refused("GET", path) == (400, "BadRequestException")


def test_properties_of_a_namespace_can_be_changed(client: Client) -> None:
    path = "/v1/namespaces/shop/properties"
    status, text = client.send("POST", path, {"removals": ["owner", "none"], "updates": {"team": "a"}})
    assert (status, json.loads(text)) == (200, {"updated": ["team"], "removed": ["owner"], "missing": ["none"]})
    assert client.get("/v1/namespaces/shop")["properties"] == {"team": "a"}
    both = {"removals": ["team"], "updates": {"team": "b"}}
    assert client.refused("POST", path, both) == (422, "UnprocessableEntityException")


def test_a_staged_table_does_not_exist_before_its_commit(client: Client) -> None:
    staged = {"name": "items", "schema": {}, "stage-create": True}
    status, text = client.send("POST", "/v1/namespaces/shop/tables", staged)
    answer = json.loads(text)
    assert status == 200 and answer["metadata-location"] is None
    path = "/v1/namespaces/shop/tables/items"
    assert client.send("HEAD", path)[0] == 404
    creation = {"requirements": [{"type": "assert-create"}], "updates": [{"location": answer["metadata"]["location"]}]}
    assert client.send("POST", path, creation)[0] == 200
    assert client.send("HEAD", path)[0] == 204
    for again in staged, {"name": "items", "schema": {}}:
        refused = client.refused("POST", "/v1/namespaces/shop/tables", again)
        assert refused == (409, "AlreadyExistsException")
    assert client.refused("POST", "/v1/namespaces/none/tables", staged) == (404, "NoSuchNamespaceException")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", TABLE, b"{"),
        ("POST", TABLE, b"\xff"),
        ("POST", TABLE, []),
        ("POST", TABLE, {"updates": []}),
        ("POST", TABLE, {"requirements": [1], "updates": []}),
        ("POST", "/v1/namespaces", {"namespace": []}),
        ("POST", "/v1/namespaces", {"namespace": "shop"}),
        ("POST", "/v1/namespaces", {"namespace": ["a"], "properties": {"b": 1}}),
        ("POST", "/v1/namespaces/shop/properties", {"removals": "owner"}),
        ("POST", "/v1/namespaces/shop/properties", {"removals": [{}]}),
        ("POST", "/v1/namespaces/shop/tables", {"name": ""}),
        ("POST", "/v1/namespaces/shop/register", {"name": "a"}),
        ("POST", "/v1/tables/rename", {"source": {"namespace": ["shop"], "name": "orders"}}),
        ("GET", "/v1/namespaces/a%1F%1Fb", None),
    ],
)
def test_malformed_requests_are_refused(client: Client, method: str, path: str, body: Any) -> None:
    assert client.refused(method, path, body) == (400, "BadRequestException")


@pytest.fixture(scope="module")
def failing() -> Iterator[Endpoint]:
    with Endpoint(Failing(), writable=True) as endpoint:  # type: ignore[arg-type]
        yield endpoint


UNKNOWN = (500, "CommitStateUnknownException")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NoSuchTableError("x"), (404, "NoSuchTableException")),
        (NoSuchNamespaceError("x"), (404, "NoSuchNamespaceException")),
        (TableAlreadyExistsError("x"), (409, "AlreadyExistsException")),
        (NamespaceAlreadyExistsError("x"), (409, "AlreadyExistsException")),
        (NamespaceNotEmptyError("x"), (409, "NamespaceNotEmptyException")),
        (CommitFailedException("x"), (409, "CommitFailedException")),
        (UnsupportedError("x"), (406, "UnsupportedOperationException")),
        (InputError("x"), (400, "BadRequestException")),
        (CommitStateUnknownException("x"), UNKNOWN),
        (SourceUnavailableError("x"), UNKNOWN),
        (KeyError("x"), UNKNOWN),
        (ValueError(""), UNKNOWN),
    ],
)
def test_errors_have_icebergs_names(failing: Endpoint, error: Exception, expected: tuple[int, str]) -> None:
    named = {"namespace": ["shop"], "name": "orders"}
    Failing.error, client = error, Client(failing)
    for method, path, body in (
        ("POST", TABLE, COMMIT),
        ("DELETE", f"{TABLE}?purgeRequested=True", None),
        ("POST", "/v1/namespaces", {"namespace": ["shop"]}),
        ("DELETE", "/v1/namespaces/shop", None),
        ("POST", "/v1/tables/rename", {"source": named, "destination": named}),
    ):
        assert client.refused(method, path, body) == expected
    read = (500, "InternalServerError") if expected == UNKNOWN else expected
    assert client.refused("GET", TABLE) == read
    assert client.send("HEAD", TABLE) == (read[0], "")
    # reports of scans are always dropped
    assert client.send("POST", f"{TABLE}/metrics", {"report-type": "scan-report"}) == (204, "")


def test_answers_and_logs_contain_no_secret(failing: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    Failing.error = RuntimeError("PUT failed: s3.secret-access-key=hunter2 at https://ann:hunter2@store/bucket")
    status, text = Client(failing).send("POST", TABLE, COMMIT)
    assert status == 500 and "PUT failed" in text and "PUT failed" in caplog.text
    for secret in "hunter2", failing.token:
        assert secret not in text + caplog.text + repr(failing)


def test_a_read_only_endpoint_refuses_writes(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    for hint in [each for each in storage.objects if each.endswith("version-hint.text")]:
        del storage.objects[hint]
    before = dict(storage.objects)
    with Endpoint(catalog, writable=False) as endpoint:
        client = Client(endpoint)
        for method, path in (("POST", TABLE), ("DELETE", TABLE), ("POST", "/v1/namespaces"), ("DELETE", TABLE)):
            assert client.refused(method, path, COMMIT) == (403, "ForbiddenException")
        assert client.get(TABLE)["metadata"]["tokens"] == []
        assert client.send("POST", f"{TABLE}/metrics", {})[0] == 204
    assert storage.objects == before, "the hint is still missing"


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "{}", "Bearer {}x", "Bearer é"])
def test_only_the_endpoints_token_is_accepted(client: Client, sent: str) -> None:
    token = client._headers["Authorization"].split()[1]
    headers = {"Authorization": sent.format(token)}
    for method, path in (("GET", "/v1/config"), ("POST", TABLE), ("GET", "/nowhere")):
        assert client.refused(method, path, COMMIT, **headers) == (401, "NotAuthorizedException")
    assert client.send("GET", "/v1/config", None, Authorization=f"bearer {token}")[0] == 200


def test_unsupported_bodies_are_refused(client: Client) -> None:
    assert client.refused("POST", TABLE, b"", **{"Content-Length": str(1 << 40)}) == (413, "BadRequestException")
    assert client.refused("POST", TABLE, b"0\r\n\r\n", **{"Transfer-Encoding": "chunked"})[0] == 411
    assert client.refused("POST", TABLE, b"", **{"Content-Length": "-1"})[0] == 411
    # the connection is closed after each, and a new one works
    assert client.send("HEAD", TABLE)[0] == 204


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "example.com"])
def test_other_addresses_need_a_certificate(catalog: ObjectCatalog, host: str) -> None:
    with pytest.raises(SpecError, match="without TLS"):
        Endpoint(catalog, writable=False, address=(host, 0))


@pytest.mark.parametrize("token", ["", "short", "with\nline-break-123", "é" * 20])
def test_unsafe_tokens_are_refused(catalog: ObjectCatalog, token: str) -> None:
    with pytest.raises(SpecError, match="token"):
        Endpoint(catalog, writable=False, token=token)


def test_an_unusable_port_is_refused(catalog: ObjectCatalog) -> None:
    with Endpoint(catalog, writable=False) as endpoint:
        port = urlsplit(endpoint.uri).port or 0
        for refused in port, 1 << 20:
            with pytest.raises(SpecError, match=f"port {refused}"):
                Endpoint(catalog, writable=False, address=("127.0.0.1", refused))


def test_the_endpoint_serves_tls(catalog: ObjectCatalog, tmp_path: Path) -> None:
    chain, key = tmp_path / "lake.pem", tmp_path / "lake.key"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    create = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    subprocess.run([*create, *subject, "-out", chain, "-keyout", key], check=True, capture_output=True)
    for wrong in (str(chain), None), (str(tmp_path / "none"), str(key)), (str(key), str(chain)):
        with pytest.raises(SpecError, match="certificate"):
            load_certificate(*wrong)
    trusting = ssl.create_default_context(cafile=str(chain))
    with Endpoint(catalog, writable=False, tls=load_certificate(str(chain), str(key))) as endpoint:
        assert endpoint.uri.startswith("https://")
        # a client without a handshake does not block others
        silent = http.client.HTTPConnection("127.0.0.1", urlsplit(endpoint.uri).port, timeout=10)
        silent.connect()
        client = Client(endpoint, trusting)
        for _ in range(2):
            assert client.get(TABLE)["metadata"]["tokens"] == []
        silent.close()
