"""Db2's log sequence numbers as Debezium writes them, in the order key.

They are ``IBMSNAP_COMMITSEQ`` and ``IBMSNAP_INTENTSEQ``, hexadecimal: 16 bytes such as
``00000000:000102b5:000000000007bf55``, or 10 of Db2 for z/OS, which look like SQL Server's. Events are ordered by
``commit_lsn`` and ``change_lsn`` (Debezium's connector for Db2, "reading change-data tables"). What is cut of them has
no use: changes of a row come in the order of their commits, so that of commits with the same first half the change
decides. From the top::

    position  63 bits  of the commit: its first 8 bytes
    ordinal   60 bits  of the change: its last ones

The SQL is that of Spark and of DuckDB.
"""

from __future__ import annotations

from lakecdc.ingest.formats.sql_server_lsn import Hexadecimal

_LENGTH, _LENGTH_ZOS = 34, 22


def position(commit: str, number: Hexadecimal, connector: str = "NULL") -> str:
    """Return SQL of an order key's position, null without a log sequence number of Db2.

    :param commit: SQL of ``commit_lsn``.
    :param connector: SQL of the connector's name.
    """
    first = number(f"replace(substr({commit}, 1, 17), ':', '')")
    return f"CASE WHEN {_is_db2(commit, connector)} THEN {first} END"


def ordinal(commit: str, change: str, number: Hexadecimal, connector: str = "NULL") -> str:
    """Return SQL of an order key's ordinal, null without a log sequence number of Db2; snapshots have no change.

    :param commit: SQL of ``commit_lsn``.
    :param change: SQL of ``change_lsn``.
    :param connector: SQL of the connector's name.
    """
    last = number(f"right(replace({change}, ':', ''), 15)")
    return f"CASE WHEN {_is_db2(commit, connector)} THEN coalesce({last}, 0) END"


def _is_db2(commit: str, connector: str) -> str:
    return f"length({commit}) = {_LENGTH} OR ({connector} = 'db2' AND length({commit}) = {_LENGTH_ZOS})"
