"""MariaDB with a row-based binary log, from the distribution's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from local_services import mysql_protocol
from local_services.process import ServiceError

SETTINGS: Mapping[str, str] = {
    **mysql_protocol.SETTINGS,
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "gtid-strict-mode": "1",
    "innodb-log-file-size": "16M",
}
# Debian installs the daemon outside a user's PATH
_PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class MariaDB(mysql_protocol.MysqlProtocolServer):
    """A MariaDB server for CDC tests."""

    name = "mariadb"
    default_settings = SETTINGS

    def initialize(self) -> None:
        """Create the system tables with ``mariadb-install-db``."""
        flags = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        size = f"--innodb-log-file-size={self.settings['innodb-log-file-size']}"
        program = program_path("mariadb-install-db")
        self.run_tool([program, "--no-defaults", f"--datadir={self.data_dir}", *flags, size])

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return [program_path("mariadbd"), "--no-defaults", *self.arguments()]


def program_path(name: str) -> str:
    """Return the path of one of MariaDB's programs, such as ``mariadbd``."""
    path = shutil.which(name, path=_PLACES)
    if path is None:
        raise ServiceError(f"{name} is missing. Run python -m local_services.install")
    return path


def is_installed() -> bool:
    """Return whether the server's program exists."""
    return shutil.which("mariadbd", path=_PLACES) is not None
