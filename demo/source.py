"""The demo's Postgres: started, filled, worked on, and left behind so that anyone can start it again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.settings import SHOP, Settings
from demo.shop import DDL, TABLES
from demo.workload import Hour, Workload
from local_services.paths import Account, first_closed_folder, reachable_folder, unprivileged_account
from local_services.postgres import SETTINGS, Postgres

if TYPE_CHECKING:
    import psycopg

#: what a server started without our help needs to go on with this data folder
_KEPT = ("wal_level", "max_replication_slots", "listen_addresses", "unix_socket_directories")


class Source:
    """The shop's database.

    :param settings: the demo's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = reachable_folder(settings.folder, "lakecdc-demo-")
        self.postgres = Postgres(
            self._home / "postgres", keep_data=True, log_file=settings.logs / "postgres.log", port=None
        )

    @property
    def moved(self) -> Path | None:
        """Where the data folder is while the server runs, if the demo's folder is closed to the server's account."""
        return None if self._home == self._settings.folder else self._home

    def start(self) -> None:
        """Start the server, and write its settings into the data folder."""
        self.postgres.start()
        with self.connect() as session:
            for name in _KEPT:
                session.execute(f"ALTER SYSTEM SET {name} = '{SETTINGS[name]}'")

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A session that commits each statement unless a transaction is opened."""
        import psycopg

        # a prepared statement does not outlive a change of its table
        return psycopg.connect(self.postgres.dsn, autocommit=True, prepare_threshold=None)

    def fill(self, workload: Workload) -> int:
        """Make the tables and the rows to begin with; how many."""
        total = 0
        with self.connect() as session:
            session.execute(DDL)
            for table in TABLES:
                with session.cursor().copy(f"COPY {table.full_name} FROM STDIN") as copy:
                    for row in workload.first_rows(table.name):
                        copy.write_row(row)
                total += workload.count(table.name)
            session.execute(f"ANALYZE {SHOP}.customers, {SHOP}.orders, {SHOP}.order_lines")
        return total

    def work(self, hour: Hour) -> None:
        """Let an hour of the workload happen."""
        with self.connect() as session:
            for transaction in hour.transactions:
                with session.transaction(), session.cursor() as cursor:
                    for statement in transaction:
                        cursor.executemany(statement.sql, statement.rows)

    def stop(self) -> None:
        """Stop the server cleanly and leave its data folder where the report says."""
        self.postgres.stop()
        if self.moved and self.postgres.data_dir.exists():
            shutil.move(self.postgres.data_dir, self._settings.postgres_data)
            give_to(self._settings.postgres_data, unprivileged_account())
            shutil.rmtree(self.moved, ignore_errors=True)


def start_again(settings: Settings) -> Source:
    """Start a server on the data folder that an earlier run has left.

    :raises FileNotFoundError: if there is none.
    """
    if not (settings.postgres_data / "PG_VERSION").exists():
        raise FileNotFoundError(f"There is no Postgres data folder {settings.postgres_data}; run `make demo` first.")
    account = unprivileged_account()
    source = Source(settings)
    if account and first_closed_folder(settings.postgres_data, account):
        shutil.move(settings.postgres_data, source.postgres.data_dir)
        give_to(source.postgres.data_dir, account)
    source.start()
    return source


def give_to(folder: Path, account: Account | None) -> None:
    """Make a data folder the server's again: moving it between file systems makes it the mover's.

    :param account: whose it is to be; None leaves it.
    """
    if account:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
