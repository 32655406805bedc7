"""A gateway to a local S3 server with the latency of a remote one; it counts requests and refuses some."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_PIECE = 256 * 1024
# per connection, not per request
_OF_THE_WAY = {"connection", "content-length", "expect"}


@dataclass
class Gateway:
    """A gateway's behaviour and statistics.

    :param port: port of the server.
    :param delay: seconds before each answer.
    :param rate: bytes per second of one connection; 0 for no limit.
    :param refuses: chooses the requests to answer with 403, by kind (``PutObject`` and so on) and number.
    :param requests: number of requests by kind.
    :param most_at_once: largest number of concurrent requests with a body.
    """

    port: int
    delay: float = 0.0
    rate: float = 0.0
    refuses: Callable[[str, int], bool] = lambda kind, number: False
    requests: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    endpoint: str = ""
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, kind: str) -> bool:
        """Count a request, and return whether to forward it."""
        with self._lock:
            self.requests[kind] += 1
            self._at_once += kind in ("PutObject", "UploadPart")
            self.most_at_once = max(self.most_at_once, self._at_once)
            return not self.refuses(kind, self.requests[kind])

    def end(self, kind: str) -> None:
        """Forget an answered request."""
        with self._lock:
            self._at_once -= kind in ("PutObject", "UploadPart")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gateway: Gateway

    def _pass_on(self) -> None:
        kind = _kind(self.command, self.path)
        passed = self.gateway.begin(kind)
        try:
            body = self._body()
            if passed:
                status, headers, answer = self._forward(body)
            else:
                for _ in body:
                    pass
                status, headers, answer = 403, [], b"<Error><Code>AccessDenied</Code></Error>"
            time.sleep(self.gateway.delay)
            self._answer(status, headers, answer)
        except (OSError, http.client.HTTPException):
            # a killed client or a stopped server
            self.close_connection = True
        finally:
            self.gateway.end(kind)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    @property
    def _is_chunked(self) -> bool:
        return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

    def _body(self) -> Iterator[bytes]:
        begun, passed = time.monotonic(), 0
        for piece in self._chunks() if self._is_chunked else self._read(int(self.headers.get("Content-Length") or 0)):
            passed += len(piece)
            yield piece
            if self.gateway.rate:
                time.sleep(max(0.0, begun + passed / self.gateway.rate - time.monotonic()))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield from self._read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _read(self, left: int) -> Iterator[bytes]:
        while left:
            piece = self.rfile.read(min(left, _PIECE))
            if not piece:
                raise ConnectionError("the client disconnected")
            left -= len(piece)
            yield piece

    def _forward(self, body: Iterator[bytes]) -> tuple[int, list[tuple[str, str]], bytes]:
        way = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
        try:
            way.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _OF_THE_WAY:
                    way.putheader(name, value)
            if not self._is_chunked:
                way.putheader("Content-Length", self.headers.get("Content-Length") or "0")
            way.endheaders(body, encode_chunked=self._is_chunked)
            response = way.getresponse()
            headers = [(name, value) for name, value in response.getheaders() if name.lower() != "transfer-encoding"]
            return response.status, headers, response.read()
        finally:
            way.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], answer: bytes) -> None:
        self.send_response_only(status)
        length = str(len(answer))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value
            elif name.lower() != "connection":
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _kind(command: str, target: str) -> str:
    parameters = parse_qs(urlsplit(target).query, keep_blank_values=True)
    if "partNumber" in parameters:
        return "UploadPart"
    if "uploads" in parameters:
        return {"POST": "CreateMultipartUpload", "GET": "ListMultipartUploads"}[command]
    if "uploadId" in parameters:
        return {"POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload", "GET": "ListParts"}[command]
    return f"{command.capitalize()}Object"


@contextmanager
def gateway_to(port: int, **settings: Any) -> Iterator[Gateway]:
    """Listen on a free port, see :class:`Gateway`."""
    gateway = Gateway(port, **settings)
    handler = type("Handler", (_Handler,), {"gateway": gateway})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        gateway.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield gateway
        finally:
            server.shutdown()
            thread.join()
