"""The ``source`` of an ingest spec: a MySQL or MariaDB database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.contract.fields import check_least


@dataclass(frozen=True)
class MysqlSource:
    """A MySQL or MariaDB server: a full load of each table, then its binary log.

    :param host: server whose binary log is read, usually the primary.
    :param port: port of the server.
    :param user: login with SELECT on the tables, REPLICATION CLIENT (MariaDB: BINLOG MONITOR) and REPLICATION SLAVE;
        full loads from MySQL also need RELOAD.
    :param password: a secret reference; default: none.
    :param database: database of source tables named without one; default: the target's namespace.
    :param ssl: encryption of connections: ``required`` does not check the certificate, ``verify_ca`` and
        ``verify_identity`` do.
    :param ssl_ca: file with certificates of authorities, on driver and executors; default: the system's.
    :param ssl_cert: file with the client's certificate.
    :param ssl_key: file with the private key of the client's certificate.
    :param server_id: id of the log reader; 0 never collides with a replica.
    :param full_load_parallelism: chunks read in parallel.
    :param chunk_rows: rows per full-load chunk.
    :param full_load_commit_rows: rows per commit of a full load, in whole chunks; after a failure the next run
        continues from the last commit. 0 means one commit, as always for modes append and history and for tables with
        a history table.
    :param max_batch_events: row events per micro-batch; as with the next two limits, the batch ends with the
        transaction that reaches it, because a transaction is never split.
    :param max_batch_bytes: bytes of log per micro-batch; 0 means no limit.
    :param max_batch_seconds: seconds of reading per micro-batch; 0 means no limit.
    :param max_transaction_events: row events in a transaction above which the run stops; 0 means no limit.
    :param allow_cascades: feed tables with cascading foreign keys, although the log lacks the cascaded changes.
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

    def __post_init__(self) -> None:
        check_least(self, "source", full_load_parallelism=1, chunk_rows=1, max_batch_events=1, port=1)
        check_least(self, "source", max_batch_bytes=0, max_batch_seconds=0, max_transaction_events=0)
        check_least(self, "source", full_load_commit_rows=0, server_id=0)
