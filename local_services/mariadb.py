"""MariaDB with a row-based binary log, from the distribution's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_services.paths import unprivileged_account
from local_services.process import Service, ServiceError

if TYPE_CHECKING:
    import pymysql

SETTINGS: Mapping[str, str] = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "1",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "local-infile": "1",
    # a test's server need not survive a power cut, only the end of its own process
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "max-allowed-packet": "256M",
    "performance-schema": "0",
    "skip-name-resolve": "1",
}
# Debian puts the daemon where only root looks
_PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class MariaDB(Service):
    """A MariaDB server for CDC tests: user ``root``, no password, 127.0.0.1 only.

    Under root it runs as ``nobody`` and owns the data folder, whose parents ``nobody`` must be able to enter (see
    :func:`local_services.paths.reachable_folder`).

    :param data_dir: data folder; made by ``mariadb-install-db`` when it holds no server, used as it is otherwise
    :param port: port to listen on; a free one if None
    :param keep_data: leave the data folder after ``stop``, so that a later start goes on with it
    :param log_file: server log; beside the data folder if None
    :param settings: server settings that override or extend :data:`SETTINGS`
    """

    name = "mariadb"

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

    def connect(self, **settings: Any) -> pymysql.Connection[Any]:
        """Open a session in autocommit mode as ``root``.

        :param settings: further arguments of ``pymysql.connect``, such as ``database``
        """
        import pymysql

        given = {"host": "127.0.0.1", "port": self.port, "user": "root", "autocommit": True, "charset": "utf8mb4"}
        return pymysql.connect(**{**given, **settings})

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server; remove the data folder unless it is to be kept.

        :param crash: end it as a power cut would; the data folder then stays for the recovery
        """
        super().stop(crash=crash)
        if not (self.keep_data or crash):
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def prepare(self) -> None:
        """Make the data folder and, the first time, the system tables in it.

        :raises ServiceError: if MariaDB is not installed, or its account cannot get to the data folder
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.hand_over(self.data_dir)
        self.data_dir.chmod(0o700)
        if not (self.data_dir / "mysql").exists():
            flags = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
            size = f"--innodb-log-file-size={self.settings['innodb-log-file-size']}"
            program = program_path("mariadb-install-db")
            self.run_tool([program, "--no-defaults", f"--datadir={self.data_dir}", *flags, size])

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        settings = [f"--{key}={value}" for key, value in self.settings.items()]
        place = [f"--datadir={self.data_dir}", f"--port={self.port}", f"--pid-file={self.data_dir}/pid"]
        # socket paths end at 107 characters, which deep data folders pass; it is relative to the data folder
        return [program_path("mariadbd"), "--no-defaults", *place, "--socket=socket", *settings]

    def environment(self) -> Mapping[str, str]:
        """Return a time zone that does not depend on the machine."""
        return {"LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def working_folder(self) -> Path:
        """Return the data folder: the one place the server's account can surely enter."""
        return self.data_dir

    def is_ready(self) -> bool:
        """Return whether a session can be opened."""
        import pymysql

        try:
            self.connect(connect_timeout=2).close()
        except pymysql.MySQLError:
            return False
        return True


def program_path(name: str) -> str:
    """Return the path of one of MariaDB's programs.

    :param name: such as ``mariadbd``
    :raises ServiceError: if it is not installed
    """
    found = shutil.which(name, path=_PLACES)
    if found is None:
        raise ServiceError(f"{name} is missing: python -m local_services.install")
    return found


def is_installed() -> bool:
    """Return whether the server's program is there."""
    return shutil.which("mariadbd", path=_PLACES) is not None
