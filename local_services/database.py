"""The base of database servers as local processes: data folder, settings, restart, crash."""

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

    :param data_dir: data folder; initialized when empty, otherwise used unchanged
    :param port: port to listen on; a free one if None
    :param keep_data: leave the data folder after ``stop``, so that a later start continues with it
    :param log_file: server log; beside the data folder if None
    :param settings: server settings that override or extend those of the class
    """

    default_settings: ClassVar[Mapping[str, str]]
    #: files that mark a server's data folder
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
        """Stop the server; remove the data folder unless it is kept.

        :param crash: end it like a power cut; the data folder then stays for the recovery
        """
        super().stop(crash=crash)
        if not (self.keep_data or crash):
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def prepare(self) -> None:
        """Create the data folder and, the first time, initialize it."""
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
        """Return the data folder: the only place the server's account can certainly enter."""
        return self.data_dir
