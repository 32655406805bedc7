"""A gateway before a REST catalog or Glue that loses chosen requests or answers."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.lakecdc.iceberg.faults.strikes import Fault, Strikes

_OF_THE_WAY = {"transfer-encoding", "connection", "content-length", "date", "server"}


class _Gateway(BaseHTTPRequestHandler):
    """Forward each request on its own connection.

    :cvar port: port of the catalog.
    """

    protocol_version = "HTTP/1.1"
    port: int
    strikes: Strikes

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = self.headers.get("X-Amz-Target", "")
        # the client also reports the duration of scans and commits, later and in another thread
        of_table = "/tables" in self.path and not self.path.endswith("/metrics")
        commits = self.command == "POST" and (of_table or target.endswith(("CreateTable", "UpdateTable")))
        fault = self.strikes.next() if commits else None
        if fault is None or fault.lost == "answer":
            status, headers, answer = self._forward(body)
        if fault is not None:
            self._lose(fault)
            return
        self._answer(status, headers, answer)

    do_GET = do_POST = do_HEAD = do_DELETE = _pass_on

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        way = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THE_WAY | {"host"}}
        way.request(self.command, self.path, body, headers)
        response = way.getresponse()
        answer = response.read()
        way.close()
        return response.status, {k: v for k, v in response.getheaders() if k.lower() not in _OF_THE_WAY}, answer

    def _lose(self, fault: Fault) -> None:
        if not fault.status:
            self.close_connection = True
            self.connection.close()
            return
        error = {"error": {"message": "upstream", "type": "GatewayException", "code": fault.status}}
        headers = {"Content-Type": "application/json"} | ({"Retry-After": "0"} if fault.retry_after else {})
        self._answer(fault.status, headers, json.dumps(error).encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def lossy_gateway(port: int) -> Iterator[tuple[int, Strikes]]:
    """Yield a port whose requests are forwarded to a catalog on another port of this machine."""
    strikes = Strikes()
    handler = type("Gateway", (_Gateway,), {"port": port, "strikes": strikes})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], strikes
        server.shutdown()
