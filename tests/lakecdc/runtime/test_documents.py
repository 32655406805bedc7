"""Documents of local and remote folders."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.runtime import documents

DOCUMENTS = {f"base/dag/try-{number}/report.json": f"[{number}]".encode() for number in range(3)}
# one that is not a document, and one that vanishes while the folder is read
KEYS = [*DOCUMENTS, "base/dag/notes.txt", "base/dag/gone.json"]


class Bucket(BaseHTTPRequestHandler):
    """An S3 bucket that lists two names per page."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        name = address.path.removeprefix("/bucket/")
        if "list-type" in query:
            keys = [key for key in KEYS if key.startswith(query["prefix"])]
            begin = int(query.get("continuation-token", 0))
            facts = "<Size>1</Size><LastModified>2026-01-31T00:00:00.000Z</LastModified>"
            listed = "".join(f"<Contents><Key>{key}</Key>{facts}</Contents>" for key in keys[begin : begin + 2])
            more = f"<NextContinuationToken>{begin + 2}</NextContinuationToken>" if begin + 2 < len(keys) else ""
            truncated = str(bool(more)).lower()
            text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{listed}</ListBucketResult>"
            self._answer(200, text.encode())
        elif name in DOCUMENTS:
            self._answer(200, DOCUMENTS[name])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "ACCESS_KEY_ID": "a",
            "SECRET_ACCESS_KEY": "b",
            "DEFAULT_REGION": "us-east-1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield
        server.shutdown()


@pytest.mark.usefixtures("bucket")
def test_all_documents_below_a_folder_of_a_bucket_are_read() -> None:
    contents = dict(documents.read_below("s3://bucket/base/", (".json",)))
    assert contents == {f"s3://bucket/{key}": content for key, content in DOCUMENTS.items()}


def test_all_documents_below_a_local_folder_are_read(tmp_path: Path) -> None:
    for key, content in {**DOCUMENTS, "base/notes.txt": b""}.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for uri in (f"{tmp_path}/base", f"file://{tmp_path}/base/"):
        assert dict(documents.read_below(uri, (".json",))) == {f"{tmp_path}/{key}": DOCUMENTS[key] for key in DOCUMENTS}
    assert not [*documents.read_below(f"{tmp_path}/none", (".json",))]


def test_an_unreadable_folder_is_reported() -> None:
    with pytest.raises(InputError, match="Cannot read"):
        [*documents.read_below("strange://bucket/base", (".json",))]
