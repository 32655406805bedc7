"""The base of database servers as local processes: a data folder, settings, a restart, a crash."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from local_services.paths import unprivileged_account
from local_services.process import Service


class DatabaseServer(Service):
    """A server for CDC tests on 127.0.0.1, with a superuser who needs no password.

    Under root it runs as ``nobody`` and owns the data folder, whose parents ``nobody`` must be able to enter (see
    :func:`local_services.paths.reachable_folder`).

    :param data_dir: data folder; made when it holds no server, used as it is otherwise
    :param port: port to listen on; a free one if None
    :param keep_data: leave the data folder after ``stop``, so that a later start goes on with it
    :param log_file: server log; beside the data folder if None
    :param settings: server settings that override or extend those of the class
    """

    default_settings: ClassVar[Mapping[str, str]]
    #: what the data folder of a server holds
    data_mark: ClassVar[str]

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

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server; remove the data folder unless it is to be kept.

        :param crash: end it as a power cut would; the data folder then stays for the recovery
        """
        super().stop(crash=crash)
        if not (self.keep_data or crash):
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def prepare(self) -> None:
        """Make the data folder and, the first time, what a new server has in it.

        :raises ServiceError: if the server is not installed, or its account cannot get to the data folder
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.hand_over(self.data_dir)
        self.data_dir.chmod(0o700)
        if not (self.data_dir / self.data_mark).exists():
            self.initialize()

    @abstractmethod
    def initialize(self) -> None:
        """Fill the empty data folder."""

    def environment(self) -> Mapping[str, str]:
        """Return a locale and a time zone that do not depend on the machine."""
        return {"LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def working_folder(self) -> Path:
        """Return the data folder: the one place the server's account can surely enter."""
        return self.data_dir
