"""The ``source`` of an ingest spec: a MySQL or MariaDB database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class MysqlSource:
    """A MySQL or MariaDB server: a full load of each table, then its binary log.

    :param host: name or address of the server whose binary log is read, usually the primary.
    :param user: login with SELECT on the tables, REPLICATION CLIENT (MariaDB: BINLOG MONITOR) and REPLICATION SLAVE;
        full loads from MySQL need RELOAD as well.
    :param password: a secret reference; default: none.
    :param database: database of source tables that are named without one; default: the target's namespace.
    :param ssl: whether the connection is encrypted: ``required`` without a look at the certificate, ``verify_ca`` and
        ``verify_identity`` with one.
    :param ssl_ca: file with the authorities' certificates, on driver and executors; default: the system's.
    :param ssl_cert: file with the client's certificate.
    :param ssl_key: file with the client certificate's private key.
    :param server_id: what the log reader calls itself; 0 is nobody and never collides with a replica.
    :param full_load_parallelism: how many chunks are read at once.
    :param chunk_rows: rows per full-load chunk.
    :param full_load_commit_rows: rows after which a full load commits what it has, in whole chunks; after a failure the
        next run goes on from there. 0 commits once. Modes append and history, and tables with a history table, commit
        once.
    :param max_batch_events: row events per micro-batch; like the next two it ends with the transaction in which the
        bound is reached, because a transaction is never cut.
    :param max_batch_bytes: bytes of log that hold them; 0 is no bound.
    :param max_batch_seconds: seconds of reading the log for it; 0 is no bound.
    :param max_transaction_events: row events of one transaction above which the run stops; 0 is no limit.
    :param allow_cascades: feed tables whose foreign keys cascade, although the log does not carry the cascaded changes.
    """

    host: str
    user: str
    type: Literal["mysql"] = "mysql"
    port: int = 3306
    password: Any = None
    database: str | None = None
    ssl: Literal["disabled", "required", "verify_ca", "verify_identity"] = "disabled"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    server_id: int = 0
    full_load_parallelism: int = 4
    chunk_rows: int = 200_000
    full_load_commit_rows: int = 20_000_000
    max_batch_events: int = 500_000
    max_batch_bytes: int = 256 * 1024 * 1024
    max_batch_seconds: int = 300
    max_transaction_events: int = 0
    allow_cascades: bool = False

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Refuse settings that no target can be fed with.

        :raises SpecError: a number out of its range.
        """
        positive = ("full_load_parallelism", "chunk_rows", "max_batch_events", "port")
        unsigned = (
            "full_load_commit_rows",
            "max_batch_bytes",
            "max_batch_seconds",
            "max_transaction_events",
            "server_id",
        )
        for name, least in {**dict.fromkeys(positive, 1), **dict.fromkeys(unsigned, 0)}.items():
            if getattr(self, name) < least:
                raise SpecError(f"source.{name} is {getattr(self, name)}.", hint=f"It must be at least {least}.")
