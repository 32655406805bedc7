"""An HTTP server of Iceberg's REST interface over a catalog in an object store.

Drivers start one for Spark in their own process; ``airflow lakecdc serve`` starts one for other engines. It has no
state, so any number of servers may serve one warehouse.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
import socket
import socketserver
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from lakecdc.contract.errors import SpecError
from lakecdc.object_store.routes import Answer, RestInterface, error

if TYPE_CHECKING:
    from lakecdc.object_store.catalog import ObjectCatalog

_log = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
#: characters of a token at least
SHORTEST_TOKEN = 16
# a commit has a few kilobytes, its metadata never more than this
_LARGEST_BODY = 64 << 20
# bytes read of a refused request, so that its client reads the answer
_SMALL_BODY = 64 << 10
# clients keep connections open; one that ends while a client writes leaves a commit's outcome unknown
_IDLE_SECONDS = 3_600
# until a client has shown its token
_STRANGER_SECONDS = 30
# interval of checks whether to stop
_POLL_SECONDS = 0.1


class Endpoint:
    """A REST catalog on a port of this machine, for clients with its token.

    :param writable: whether it takes anything but reads.
    :param address: host and port; port 0 is a free one.
    :param token: sent by clients as ``Authorization: Bearer``; default: a random one.
    :param tls: certificate and key; without them only a loopback address is served.
    :raises SpecError: the address or the token is not safe.
    """

    def __init__(
        self,
        catalog: ObjectCatalog,
        *,
        writable: bool,
        address: tuple[str, int] = (_LOOPBACK, 0),
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.token = secrets.token_urlsafe(32) if token is None else token
        if len(self.token) < SHORTEST_TOKEN or not (self.token.isascii() and self.token.isprintable()):
            raise SpecError(
                "The token of the endpoint is too short, or has characters that headers cannot carry.",
                hint=f"Use at least {SHORTEST_TOKEN} letters and digits.",
            )
        host = address[0]
        if tls is None and not _is_loopback(host):
            raise SpecError(
                f"Cannot serve the catalog on {host or 'all addresses'} without TLS, as its clients send their token.",
                hint=f"Give a certificate and its key, or serve on {_LOOPBACK}.",
            )
        try:
            self._server = _Server(address, RestInterface(catalog, writable=writable), self.token, tls)
        except (OSError, OverflowError) as refused:
            raise SpecError(
                f"Cannot serve the catalog on {host}, port {address[1]}: {refused}.",
                hint="Use another address or port.",
            ) from refused
        shown = f"[{host}]" if ":" in host else host
        self.uri = f"{'https' if tls else 'http'}://{shown}:{self._server.server_address[1]}"

    def start(self) -> Self:
        """Serve in a separate thread."""
        Thread(target=self.serve, name="lakecdc-endpoint", daemon=True).start()
        return self

    def serve(self) -> None:
        """Serve until :meth:`stop`."""
        self._server.serve_forever(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop accepting connections; open ones end with their clients."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def load_certificate(certificate: str, key: str | None) -> ssl.SSLContext:
    """Return the settings of a server with a certificate.

    :param key: its file; None if the certificate's has it too.
    :raises SpecError: the files cannot be read, or do not fit.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(Path(certificate), Path(key) if key else None)
    except OSError as refused:
        raise SpecError(
            f"The certificate {certificate} cannot be used with its key: {refused.strerror or refused}.",
            hint="Give the files of a certificate chain and of its key, as PEM without a passphrase.",
        ) from refused
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], interface: RestInterface, token: str, tls: ssl.SSLContext | None
    ) -> None:
        self.interface = interface
        self.token = token.encode()
        self._tls = tls
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # http.server looks up a host name that nothing uses
        socketserver.TCPServer.server_bind(self)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # in the connection's thread, so that a slow TLS handshake does not block other clients
        request.settimeout(_Handler.timeout)
        with self._tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A connection ended before its request was answered.", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "lakecdc"
    timeout = _STRANGER_SECONDS
    # headers and body are two writes
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._send(self._answer())

    do_HEAD = do_POST = do_DELETE = do_GET

    def _answer(self) -> Answer:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self.server.token):
            return self._refuse(401, "NotAuthorizedException", "The request does not have the token of this catalog.")
        self.connection.settimeout(_IDLE_SECONDS)
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            return self._refuse(411, "BadRequestException", "Send the length of the body, not chunks.")
        if int(length) > _LARGEST_BODY:
            return self._refuse(413, "BadRequestException", f"The body is larger than {_LARGEST_BODY} bytes.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return self._refuse(400, "BadRequestException", "The body ended early.")
        return self.server.interface.answer(self.command, self.path, body)

    def _refuse(self, status: int, kind: str, message: str) -> Answer:
        """Answer with an error and end the connection without reading the body."""
        self.close_connection = True
        length = self.headers.get("Content-Length", "0")
        if length.isdecimal() and int(length) <= _SMALL_BODY:
            self.rfile.read(int(length))
        return error(status, kind, message)

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode()
        self.send_response(answer.status)
        if answer.status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        if answer.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)
