"""What MariaDB and MySQL have in common as local processes: a data folder, sessions of ``root``, a restart, a crash."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from local_services.paths import unprivileged_account
from local_services.process import Service

if TYPE_CHECKING:
    import pymysql


class MysqlProtocolServer(Service):
    """A server for CDC tests that speaks MySQL's protocol: user ``root``, no password, 127.0.0.1 only.

    Under root it runs as ``nobody`` and owns the data folder, whose parents ``nobody`` must be able to enter (see
    :func:`local_services.paths.reachable_folder`).

    :param data_dir: data folder; made when it holds no server, used as it is otherwise
    :param port: port to listen on; a free one if None
    :param keep_data: leave the data folder after ``stop``, so that a later start goes on with it
    :param log_file: server log; beside the data folder if None
    :param settings: server settings that override or extend those of the class
    """

    default_settings: ClassVar[Mapping[str, str]]

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
        self.settings = {**self.default_settings, **(settings or {})}
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

        :raises ServiceError: if the server is not installed, or its account cannot get to the data folder
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.hand_over(self.data_dir)
        self.data_dir.chmod(0o700)
        if not (self.data_dir / "mysql").exists():
            self.initialize()

    @abstractmethod
    def initialize(self) -> None:
        """Make the system tables in the empty data folder."""

    def arguments(self) -> Sequence[str]:
        """Return the arguments of the server's program."""
        settings = [f"--{key}={value}" for key, value in self.settings.items()]
        place = [f"--datadir={self.data_dir}", f"--port={self.port}", f"--pid-file={self.data_dir}/pid"]
        # socket paths end at 107 characters, which deep data folders pass; it is relative to the data folder
        return [*place, "--socket=socket", *settings]

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
