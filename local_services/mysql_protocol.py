"""The base of MariaDB and MySQL as local processes: settings, sessions of ``root``, the command line."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_services.database import DatabaseServer
from local_services.process import ANSWER_SECONDS

if TYPE_CHECKING:
    import pymysql

SETTINGS: Mapping[str, str] = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-row-metadata": "FULL",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "local-infile": "1",
    # a test's server need not survive a power cut, only the end of its own process
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "innodb-buffer-pool-size": "32M",
    "max-allowed-packet": "256M",
    "performance-schema": "0",
    "skip-name-resolve": "1",
}


class MysqlProtocolServer(DatabaseServer):
    """A server that speaks MySQL's protocol: user ``root``, no password."""

    data_mark = "mysql"

    @property
    def scratch_dir(self) -> Path:
        """Return the folder of the server's temporary tables.

        Each server has one of its own: at its start it deletes all temporary tables that lie there.
        """
        return self.data_dir.with_name(f"{self.data_dir.name}.tmp")

    def prepare(self) -> None:
        """Make the folder of the temporary tables and what every database server needs.

        :raises ServiceError: if the server is not installed, or its account cannot get to the folders
        """
        self.scratch_dir.mkdir(parents=True, exist_ok=True)
        self.hand_over(self.scratch_dir)
        super().prepare()

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server and remove its temporary tables; see :meth:`DatabaseServer.stop`.

        :param crash: end it as a power cut would
        """
        super().stop(crash=crash)
        shutil.rmtree(self.scratch_dir, ignore_errors=True)

    def environment(self) -> Mapping[str, str]:
        """Return the variables of every database server and the folder of the temporary tables.

        By the environment also the programs that make the system tables get it.
        """
        return {**super().environment(), "TMPDIR": str(self.scratch_dir)}

    def connect(self, **settings: Any) -> pymysql.Connection[Any]:
        """Open a session in autocommit mode as ``root``.

        :param settings: further arguments of ``pymysql.connect``, such as ``database``
        """
        import pymysql

        given = {"host": "127.0.0.1", "port": self.port, "user": "root", "autocommit": True, "charset": "utf8mb4"}
        return pymysql.connect(**{**given, **settings})

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the server's program."""
        settings = [f"--{key}={value}" for key, value in self.settings.items()]
        place = [f"--datadir={self.data_dir}", f"--port={self.port}", f"--pid-file={self.data_dir}/pid"]
        # socket paths end at 107 characters, which deep data folders pass; it is relative to the data folder
        return [*place, "--socket=socket", *settings]

    def is_ready(self) -> bool:
        """Return whether a session can be opened."""
        import pymysql

        try:
            self.connect(connect_timeout=ANSWER_SECONDS).close()
        except pymysql.MySQLError:
            return False
        return True
