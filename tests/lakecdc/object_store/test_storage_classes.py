"""Storage classes from HEAD requests to an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.object_store.s3 import storage_classes

_ANSWERS = {
    "/lab/plain": (200, {}),
    "/lab/data/a%20b%2520%C3%A9": (200, {"x-amz-storage-class": "DEEP_ARCHIVE"}),
    "/lab/tiered": (
        200,
        {"x-amz-storage-class": "INTELLIGENT_TIERING", "x-amz-archive-status": "ARCHIVE_ACCESS"},
    ),
    "/lab/refused": (403, {}),
}


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        status, headers = _ANSWERS.get(self.path, (404, {}))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def properties() -> Iterator[dict[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "s3.endpoint": f"http://127.0.0.1:{server.server_address[1]}",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    server.shutdown()
    server.server_close()


def test_classes_and_tiers_of_existing_objects_are_returned(properties: dict[str, str]) -> None:
    odd = "s3a://lab/data/a b%20é"
    locations = ["s3://lab/plain", odd, "s3://lab/tiered", "s3://lab/gone", "file:///tmp/lab/plain"]
    assert storage_classes(properties, locations) == {
        "s3://lab/plain": "STANDARD",
        odd: "DEEP_ARCHIVE",
        "s3://lab/tiered": "ARCHIVE_ACCESS",
    }


def test_a_refused_request_is_reported(properties: dict[str, str]) -> None:
    with pytest.raises(SourceUnavailableError, match="Cannot look up the storage class of s3://lab/refused"):
        storage_classes(properties, ["s3://lab/refused"])
