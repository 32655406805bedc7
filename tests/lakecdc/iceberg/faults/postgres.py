"""A connection to a Postgres or Hive catalog that can be cut in the middle of a commit."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

from tests.lakecdc.iceberg.faults.strikes import Fault, Strikes

#: the start of a commit in Postgres, and the request for one at Hive's metastore
COMMITS = (b"UPDATE iceberg_tables", b"INSERT INTO iceberg_tables", b"alter_table", b"create_table")


class _Way:
    """One connection, with a thread for each direction."""

    def __init__(self, client: socket.socket, port: int, strikes: Strikes) -> None:
        self._client, self._server = client, socket.create_connection(("127.0.0.1", port))
        self._strikes, self._fault = strikes, cast("Fault | None", None)
        for target in (self._there, self._back):
            threading.Thread(target=target, daemon=True).start()

    def _there(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(1 << 16):
                commits = any(commit in data for commit in COMMITS)
                self._fault = self._strikes.next(commits=commits) or self._fault
                if self._fault is not None and self._fault.lost == "request":
                    break
                self._server.sendall(data)
        self._end()

    def _back(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(1 << 16):
                # they answer once the commit is done
                if self._fault is not None:
                    break
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def lossy_way(port: int) -> Iterator[tuple[int, Strikes]]:
    """Yield a port whose traffic is forwarded to another port of this machine."""
    strikes = Strikes()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    _Way(listening.accept()[0], port, strikes)

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], strikes
