"""MySQL with a row-based binary log, from packages of a newer Debian, unpacked outside the system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from local_services import mysql_packages, mysql_protocol

SETTINGS: Mapping[str, str] = {
    **mysql_protocol.SETTINGS,
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "innodb-redo-log-capacity": "16M",
    "innodb-doublewrite": "OFF",
    "mysqlx": "OFF",
    # Debian's default is a system folder
    "secure-file-priv": "NULL",
}


class MySQL(mysql_protocol.MysqlProtocolServer):
    """A MySQL server for CDC tests, with certificates for encrypted sessions."""

    name = "mysql"
    default_settings = SETTINGS

    def initialize(self) -> None:
        """Create the system tables, with a ``root`` that may connect by TCP."""
        users = self.data_dir.with_name(f"{self.data_dir.name}.sql")
        users.write_text("RENAME USER root@localhost TO root@'127.0.0.1';\n")
        users.chmod(0o644)
        flags = ["--initialize-insecure", f"--init-file={users}", f"--datadir={self.data_dir}"]
        sizes = [f"--{name}={self.settings[name]}" for name in ("innodb-redo-log-capacity", "innodb-doublewrite")]
        self.run_tool([*mysql_packages.server_command(), *flags, *sizes, "--secure-file-priv=NULL"])
        users.unlink()

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return [*mysql_packages.server_command(), *self.arguments()]
