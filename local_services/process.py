"""One server process: a free port, a log file, a ready check, a stop that waits."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from local_services.paths import Account, first_closed_folder

LOG_TAIL = 2000
#: seconds until a server that does not stop is killed
STOP_SECONDS = 30.0
#: seconds a server or job may take on a busy machine; one that has ended is noticed at once
PATIENCE = 600.0
#: seconds for one answer of a server: a client that gives up early retries and keeps it busy
ANSWER_SECONDS = 30


class ServiceError(RuntimeError):
    """A local service cannot be started; the message says what to do."""


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_answers(port: int) -> bool:
    """Return whether this port of 127.0.0.1 accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def http_answers(url: str, method: str = "GET") -> bool:
    """Return whether a server answers a request with success."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=ANSWER_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Startable(ABC):
    """Something that runs from ``start`` to ``stop``, or within a ``with`` block."""

    @abstractmethod
    def start(self) -> Self:
        """Start it and wait until it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it if it runs."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Service(Startable):
    """A server process with a life of ``start`` … ``stop``; also a context manager.

    :param log_file: file of its output, appended to
    :param port: port to listen on; a free one is chosen at the first start and kept for restarts
    :param account: account to run as; None for the current user
    """

    name: str = "service"
    stop_signal: signal.Signals = signal.SIGTERM
    #: whether it adds its variables to those of this process
    inherits_environment: bool = True
    #: whether signals go to its process group, because it would leave its children running
    signals_group: bool = False

    def __init__(self, log_file: Path, port: int | None = None, account: Account | None = None) -> None:
        self.log_file = log_file
        self.account = account
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Return the TCP port on 127.0.0.1, the same for the life of this object."""
        if self._port is None:
            self._port = free_port()
        return self._port

    @property
    def running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server and wait until it answers.

        :raises ServiceError: if it ends or is not ready in time; the message contains the end of its log
        """
        if self.running:
            return self
        self.prepare()
        if port_answers(self.port):
            raise ServiceError(f"{self.name}: port {self.port} is in use by another process")
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = self._spawn(self.command(), log.fileno())
        # A script that ends with an exception outside a `with` must not leave servers behind.
        atexit.register(self.stop)
        self._wait_ready()
        return self

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server and wait for its end, if it runs.

        :param crash: kill it without cleanup, like a power cut
        """
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is None or (process.poll() is not None and not self.signals_group):
            return
        self._signal(process, self.crash_signal() if crash else self.stop_signal)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and (process.poll() is None or self._signal(process, 0)):
            time.sleep(0.05)
        self._signal(process, signal.SIGKILL)
        process.wait()

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command line of the server."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server does its work, not merely listens."""

    def prepare(self) -> None:
        """Create what the server needs before its first start; called before every start."""

    def environment(self) -> Mapping[str, str]:
        """Return additional variables of the server's environment."""
        return {}

    def working_folder(self) -> Path | None:
        """Return the folder the server runs in; None for the current one."""
        return None

    def crash_signal(self) -> signal.Signals:
        """Return the signal that ends the server without cleanup."""
        return signal.SIGKILL

    def hand_over(self, folder: Path) -> None:
        """Give a folder to the account the server runs as, if that is another user.

        :raises ServiceError: if the account may not enter one of the folder's parents
        """
        if self.account is None:
            return
        closed = first_closed_folder(folder, self.account)
        if closed:
            raise ServiceError(
                f"{self.name} runs as {self.account.name}, which may not enter {closed}, a parent of the data folder "
                f"{folder}. Choose a folder elsewhere, or `chmod o+x {closed}`"
            )
        os.chown(folder, self.account.uid, self.account.gid)

    def run_tool(self, command: Sequence[str]) -> None:
        """Run a helper program as the server's account; the error of one that fails contains its output."""
        process = self._spawn(command, subprocess.PIPE)
        output = process.communicate()[0].decode(errors="replace")
        if process.returncode:
            raise ServiceError(f"{self.name}: {Path(command[0]).name} failed: {output[-LOG_TAIL:]}")

    def _spawn(self, command: Sequence[str], stdout: int) -> subprocess.Popen[bytes]:
        account = self.account
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            cwd=self.working_folder(),
            env={**(os.environ if self.inherits_environment else {}), **self.environment()},
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            # Ctrl-C in the terminal must reach us first, or the servers end before their clients are closed.
            start_new_session=True,
        )

    def _signal(self, process: subprocess.Popen[bytes], number: int) -> bool:
        """Send a signal, or only probe with 0; return whether a process could receive it."""
        if not self.signals_group:
            process.send_signal(number)
            return process.returncode is None
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.is_ready():
            if not self.running:
                self.stop()
                raise ServiceError(f"{self.name} ended on startup:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise ServiceError(f"{self.name} is not ready after {PATIENCE:.0f} s:\n{self._log_tail()}")
            time.sleep(0.05)

    def _log_tail(self) -> str:
        return self.log_file.read_text(errors="replace")[-LOG_TAIL:]
