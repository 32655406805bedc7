"""SQL Server's log sequence numbers as Debezium writes them, in the order key.

``00000027:00000758:0005`` is the number of the virtual log file, the log block (in units of 512 bytes) and the record's
slot in it, hexadecimal. Events are ordered by ``commit_lsn``, ``change_lsn`` and ``event_serial_no`` (Debezium's
connector for SQL Server, "source"). Together these are more than 128 bits; what is cut has no use: a log file has at
most 2 TB, in 16 virtual ones or more, and a block of 60 KB at most. From the top::

    position  63 bits  of the commit: virtual log file, block
    ordinal   11 bits  of the commit: slot
               8 bits  virtual log files between change and commit, subtracted from 255
              28 bits  of the change: block
              12 bits  of the change: slot
               4 bits  event_serial_no

The SQL is that of Spark and of DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable

_LENGTH = 22

#: SQL of the number that SQL of hexadecimal digits means
Hexadecimal = Callable[[str], str]


def position(commit: str, number: Hexadecimal) -> str:
    """Return SQL of an order key's position, null without a log sequence number.

    :param commit: SQL of ``commit_lsn``.
    """
    place = number(f"replace(substr({commit}, 1, 17), ':', '')")
    return f"CASE WHEN length({commit}) = {_LENGTH} THEN {place} END"


def ordinal(commit: str, change: str, serial: str, number: Hexadecimal) -> str:
    """Return SQL of an order key's ordinal, null without a log sequence number; a snapshot's rows have no change.

    :param commit: SQL of ``commit_lsn``.
    :param change: SQL of ``change_lsn``.
    :param serial: SQL of ``event_serial_no``, a number.
    """
    between = f"least({_file(commit, number)} - {_file(change, number)}, 255)"
    within = (
        f"(255 - {between}) * {1 << 44} + least({number(f'substr({change}, 10, 8)')}, {(1 << 28) - 1}) * {1 << 16}"
        f" + least({_slot(change, number)}, {(1 << 12) - 1}) * 16 + least(coalesce({serial}, 0), 15)"
    )
    # the least of null and a number is the number
    of_change = f"CASE WHEN {change} IS NULL THEN 0 ELSE coalesce({within}, 0) END"
    slot = f"least({_slot(commit, number)}, {(1 << 11) - 1}) * {1 << 52}"
    return f"CASE WHEN length({commit}) = {_LENGTH} THEN {slot} + {of_change} END"


def _file(lsn: str, number: Hexadecimal) -> str:
    return number(f"substr({lsn}, 1, 8)")


def _slot(lsn: str, number: Hexadecimal) -> str:
    return number(f"substr({lsn}, 19, 4)")
