"""The ``source`` of an ingest spec: a Postgres database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.contract.fields import check_least


@dataclass(frozen=True)
class PostgresSource:
    """A Postgres database: a full load of each table, then its log through one replication slot.

    :param dsn: libpq connection string or URI, without the password.
    :param password: a secret reference; default: none (trust, peer, ``~/.pgpass``).
    :param slot: name of the logical replication slot, one per group of tables that are ingested together.
    :param publication: name of the publication; default: the slot's name.
    :param create: create publication and slot when no table has a position yet.
    :param full_load_parallelism: chunks read in parallel.
    :param chunk_bytes: heap bytes per full-load chunk.
    :param full_load_commit_bytes: heap bytes per commit of a full load; after a failure the next run continues from the
        last commit. 0 means one commit, as always for tables without a key or with a history table.
    :param max_batch_events: log events per micro-batch; as with the next two limits, the batch ends with the
        transaction that reaches it, because a transaction is never split.
    :param max_batch_bytes: bytes of column values, as text, per micro-batch; 0 means no limit.
    :param max_batch_seconds: seconds of reading per micro-batch; 0 means no limit.
    :param infinity: treatment of the times ``infinity`` and ``-infinity``: ``quarantine`` their events, ``null``, or
        ``bounds``, the first and last moment of the years 1 to 9999.
    :param max_slot_lag_bytes: log kept back by the slot above which a failing table is given up; 0 means no limit.
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
        return self.publication or self.slot

    def __post_init__(self) -> None:
        check_least(self, "source", full_load_parallelism=1, chunk_bytes=1, max_batch_events=1)
        check_least(self, "source", full_load_commit_bytes=0, max_batch_bytes=0, max_batch_seconds=0)
        check_least(self, "source", max_slot_lag_bytes=0)
