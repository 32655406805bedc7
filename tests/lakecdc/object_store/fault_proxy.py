"""A proxy before an S3 server that imitates faulty networks and other stores."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Reply = tuple[int, dict[str, str], bytes]
Send = Callable[[], Reply]
#: gets a function that forwards the request; returns the answer, or None to drop the connection
Fault = Callable[["Request", Send], Reply | None]

_CONDITIONS = ("if-match", "if-none-match")


class Request:
    """A forwarded request; a fault may change its headers, which only a signature could reveal."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body

    @property
    def is_conditional(self) -> bool:
        return self.method == "PUT" and any(name.lower() in _CONDITIONS for name in self.headers)


def drop_answer(request: Request, send: Send) -> Reply | None:
    """Forward, then close the connection."""
    send()
    return None


def drop_request(request: Request, send: Send) -> Reply | None:
    """Close the connection at once."""
    return None


def double(request: Request, send: Send) -> Reply | None:
    """Forward twice, like a retrying proxy, and return the second answer."""
    send()
    return send()


def delay(seconds: float) -> Fault:
    """Return a fault that forwards at once and answers late."""

    def late(request: Request, send: Send) -> Reply | None:
        answer = send()
        time.sleep(seconds)
        return answer

    return late


def answer_with(status: int, code: str, *, said_as: int | None = None) -> Fault:
    """Return a fault that forwards nothing and answers an S3 error.

    :param said_as: the status that is sent, if it differs.
    """
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{status}</Message></Error>'
    return lambda request, send: (said_as or status, {"Content-Type": "application/xml"}, text.encode())


def answer_200(request: Request, send: Send) -> Reply | None:
    """Forward, and return the answer with status 200."""
    _, headers, body = send()
    return 200, headers, body


def ignore_conditions(request: Request, send: Send) -> Reply | None:
    """Forward without the condition; the server must not check signatures."""
    request.headers = {name: value for name, value in request.headers.items() if name.lower() not in _CONDITIONS}
    return send()


class FaultProxy:
    """A proxy on a free port, started by a ``with`` block.

    :param target: address of the server.
    """

    def __init__(self, target: str) -> None:
        self.fault: Fault | None = None
        #: number of conditional writes, counting each attempt
        self.attempts = 0
        proxy = self

        class Handler(_Handler):
            def handle_one(self) -> None:
                proxy._handle(self, target.removeprefix("http://"))

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler: Any, target: str) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, handler.path, dict(handler.headers.items()), body)
        fault = self.fault if request.is_conditional else None
        self.attempts += request.is_conditional
        answer = fault(request, lambda: _forward(target, request)) if fault else _forward(target, request)
        if answer is None:
            handler.close_connection = True
            return
        status, headers, content = answer
        handler.send_response_only(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if "Content-Length" not in headers:
            handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of clients that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one(self) -> None:
        raise NotImplementedError

    def do_PUT(self) -> None:
        self.handle_one()

    do_GET = do_HEAD = do_DELETE = do_POST = do_PUT

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _forward(target: str, request: Request) -> Reply:
    connection = http.client.HTTPConnection(target, timeout=60)
    try:
        # the proxy already sent "continue" to the client; its Host is part of the signature
        headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        reply = {n: v for n, v in answer.getheaders() if n.lower() not in ("transfer-encoding", "connection", "date")}
        return answer.status, reply, answer.read()
    finally:
        connection.close()
