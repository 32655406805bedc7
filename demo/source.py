"""The demo's Postgres."""

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

#: settings that a server started without the demo needs for this data folder
_PERSISTED_SETTINGS = ("wal_level", "max_replication_slots", "listen_addresses", "unix_socket_directories")


class Source:
    """The shop's database."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = reachable_folder(settings.folder, "lakecdc-demo-")
        self.postgres = Postgres(
            self._home / "postgres", keep_data=True, log_file=settings.logs / "postgres.log", port=None
        )

    @property
    def moved(self) -> Path | None:
        """Return the data folder while the server runs, if the server's account cannot enter the demo's folder."""
        return None if self._home == self._settings.folder else self._home

    def start(self) -> None:
        """Start the server and write its settings into the data folder."""
        self.postgres.start()
        with self.connect() as session:
            for name in _PERSISTED_SETTINGS:
                session.execute(f"ALTER SYSTEM SET {name} = '{SETTINGS[name]}'")

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a session that commits each statement outside of transactions."""
        import psycopg

        # prepared statements break when their table changes
        return psycopg.connect(self.postgres.dsn, autocommit=True, prepare_threshold=None)

    def fill(self, workload: Workload) -> int:
        """Create the tables with their initial rows, and return the number of rows."""
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
        """Execute an hour of the workload."""
        with self.connect() as session:
            for transaction in hour.transactions:
                with session.transaction(), session.cursor() as cursor:
                    for statement in transaction:
                        cursor.executemany(statement.sql, statement.rows)

    def stop(self) -> None:
        """Stop the server and move its data folder to the place in the report."""
        self.postgres.stop()
        if self.moved and self.postgres.data_dir.exists():
            shutil.move(self.postgres.data_dir, self._settings.postgres_data)
            give_to(self._settings.postgres_data, unprivileged_account())
            shutil.rmtree(self.moved, ignore_errors=True)


def start_again(settings: Settings) -> Source:
    """Start a server on the data folder of an earlier run.

    :raises FileNotFoundError: it does not exist.
    """
    if not (settings.postgres_data / "PG_VERSION").exists():
        raise FileNotFoundError(f"{settings.postgres_data} does not exist. Run `make demo` first.")
    account = unprivileged_account()
    source = Source(settings)
    if account and first_closed_folder(settings.postgres_data, account):
        shutil.move(settings.postgres_data, source.postgres.data_dir)
        give_to(source.postgres.data_dir, account)
    source.start()
    return source


def give_to(folder: Path, account: Account | None) -> None:
    """Give a data folder back to the server's account, after moving it between file systems changed its owner.

    :param account: the owner; None changes nothing.
    """
    if account:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
