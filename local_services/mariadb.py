"""MariaDB with a row-based binary log, from the distribution's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from local_services.mysql_protocol import MysqlProtocolServer
from local_services.process import ServiceError

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


class MariaDB(MysqlProtocolServer):
    """A MariaDB server for CDC tests."""

    name = "mariadb"
    default_settings = SETTINGS

    def initialize(self) -> None:
        """Make the system tables by ``mariadb-install-db``."""
        flags = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        size = f"--innodb-log-file-size={self.settings['innodb-log-file-size']}"
        program = program_path("mariadb-install-db")
        self.run_tool([program, "--no-defaults", f"--datadir={self.data_dir}", *flags, size])

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return [program_path("mariadbd"), "--no-defaults", *self.arguments()]


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
