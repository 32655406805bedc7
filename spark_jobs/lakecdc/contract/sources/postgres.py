"""The ``source`` of an ingest spec: a Postgres database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class PostgresSource:
    """A Postgres database: a full load of each table, then its log through one replication slot.

    :param dsn: libpq connection string or URI, without the password.
    :param password: a secret reference; default: none (trust, peer, ``~/.pgpass``).
    :param slot: name of the logical replication slot, one per group of tables that is ingested together.
    :param publication: name of the publication; default: the slot's name.
    :param create: make publication and slot when no table has a position yet.
    :param full_load_parallelism: how many chunks are read at once.
    :param chunk_bytes: heap bytes per full-load chunk.
    :param full_load_commit_bytes: heap bytes after which a full load commits what it has; after a failure the next run
        goes on from there. 0 commits once. Tables without a key, and those with a history table, commit once.
    :param max_batch_events: log events per micro-batch; like the next two it ends with the transaction in which the
        bound is reached, because a transaction is never cut.
    :param max_batch_bytes: bytes of its column values, as text; 0 is no bound.
    :param max_batch_seconds: seconds of reading the log for it; 0 is no bound.
    :param infinity: what the dates and times ``infinity`` and ``-infinity`` become: ``quarantine`` sets their events
        apart, ``null``, or ``bounds``, the first and the last moment of the years 1 to 9999.
    :param max_slot_lag_bytes: log held back by the slot above which a failing table is given up; 0 is no limit.
    """

    dsn: str
    slot: str
    type: Literal["postgres"] = "postgres"
    password: Any = None
    publication: str | None = None
    create: bool = True
    full_load_parallelism: int = 4
    chunk_bytes: int = 64 * 1024 * 1024
    full_load_commit_bytes: int = 16 * 1024 * 1024 * 1024
    max_batch_events: int = 500_000
    max_batch_bytes: int = 256 * 1024 * 1024
    max_batch_seconds: int = 300
    max_slot_lag_bytes: int = 0
    infinity: Literal["quarantine", "null", "bounds"] = "quarantine"

    @property
    def publication_name(self) -> str:
        """The publication's name."""
        return self.publication or self.slot

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Every target can be fed, for the database tells keys and columns; refuse numbers that make no sense.

        :raises SpecError: a number out of its range.
        """
        lowest = {"full_load_parallelism": 1, "chunk_bytes": 1, "full_load_commit_bytes": 0, "max_batch_events": 1}
        for name, least in {**lowest, "max_batch_bytes": 0, "max_batch_seconds": 0, "max_slot_lag_bytes": 0}.items():
            if getattr(self, name) < least:
                raise SpecError(f"source.{name} is {getattr(self, name)}.", hint=f"It must be at least {least}.")
