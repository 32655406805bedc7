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
    # a test's server must survive the end of its process only, not a power cut
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

        Servers do not share it: at its start a server deletes all temporary tables there.
        """
        return self.data_dir.with_name(f"{self.data_dir.name}.tmp")

    def prepare(self) -> None:
        """Create the folder of the temporary tables, and prepare the database server."""
        self.scratch_dir.mkdir(parents=True, exist_ok=True)
        self.hand_over(self.scratch_dir)
        super().prepare()

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server and remove its temporary tables; see :meth:`DatabaseServer.stop`.

        :param crash: end it like a power cut
        """
        super().stop(crash=crash)
        shutil.rmtree(self.scratch_dir, ignore_errors=True)

    def environment(self) -> Mapping[str, str]:
        """Return the variables of every database server, and the folder of the temporary tables.

        The environment also reaches the programs that create the system tables.
        """
        return {**super().environment(), "TMPDIR": str(self.scratch_dir)}

    def connect(self, **settings: Any) -> pymysql.Connection[Any]:
        """Open a session in autocommit mode as ``root``.

        :param settings: additional arguments of ``pymysql.connect``, such as ``database``
        """
        import pymysql

        given = {"host": "127.0.0.1", "port": self.port, "user": "root", "autocommit": True, "charset": "utf8mb4"}
        return pymysql.connect(**{**given, **settings})

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the server's program."""
        settings = [f"--{key}={value}" for key, value in self.settings.items()]
        place = [f"--datadir={self.data_dir}", f"--port={self.port}", f"--pid-file={self.data_dir}/pid"]
        # relative to the data folder, as socket paths end at 107 characters
        return [*place, "--socket=socket", *settings]

    def is_ready(self) -> bool:
        """Return whether a session can be opened."""
        import pymysql

        try:
            self.connect(connect_timeout=ANSWER_SECONDS).close()
        except pymysql.MySQLError:
            return False
        return True
