"""Convert the log sequence numbers of SQL Server and Db2 in Debezium's form to coordinates of the order key.

SQL Server: ``00000027:00000758:0005`` is the number of the virtual log file, the log block (in units of 512 bytes) and
the record's slot in it, hexadecimal. Events are ordered by ``commit_lsn``, ``change_lsn`` and ``event_serial_no``
(Debezium's connector for SQL Server, "source"). Together these are more than 128 bits; the cut bits are unused: a log
file has at most 2 TB, in at least 16 virtual ones, and blocks have at most 60 KB. From the top::

    position  63 bits  of the commit: virtual log file, block
    ordinal   11 bits  of the commit: slot
               8 bits  virtual log files between change and commit, subtracted from 255
              28 bits  of the change: block
              12 bits  of the change: slot
               4 bits  event_serial_no

Db2: ``IBMSNAP_COMMITSEQ`` and ``IBMSNAP_INTENTSEQ``, hexadecimal: 16 bytes such as
``00000000:000102b5:000000000007bf55``, or 10 of Db2 for z/OS, which look like SQL Server's. Events are ordered by
``commit_lsn`` and ``change_lsn`` (Debezium's connector for Db2, "reading change-data tables"). Changes of a row are in
commit order, so for commits with the same first half the change decides. From the top::

    position  63 bits  of the commit: its first 8 bytes
    ordinal   60 bits  of the change: its last ones
"""

from __future__ import annotations

import re

_DB2_LENGTH, _LENGTH = 34, 22
_HEXADECIMAL = re.compile("[0-9a-fA-F]{1,16}")
_MOST_BLOCKS, _MOST_SLOTS, _MOST_COMMIT_SLOTS, _MOST_FILES = (1 << 28) - 1, (1 << 12) - 1, (1 << 11) - 1, 255


def coordinates(
    commit: str | None, change: str | None, serial: int | None, connector: str | None
) -> tuple[int | None, int | None]:
    """Return position and ordinal of an event's order key; None without a log sequence number.

    :param change: the number of the change; None for a row of a snapshot.
    :param serial: SQL Server's ``event_serial_no``.
    :param connector: Debezium's name of the connector, if known.
    """
    if commit is None or len(commit) not in (_DB2_LENGTH, _LENGTH):
        return None, None
    position = hexadecimal(commit[:17].replace(":", ""))
    if len(commit) == _DB2_LENGTH or connector == "db2":
        return position, hexadecimal((change or "").replace(":", "")[-15:]) or 0
    slot = min(hexadecimal(commit[18:22]) or 0, _MOST_COMMIT_SLOTS) << 52
    return position, slot if change is None else slot + _within_commit(commit, change, serial)


def _within_commit(commit: str, change: str, serial: int | None) -> int:
    last, of_change = hexadecimal(commit[:8]), hexadecimal(change[:8])
    files = _MOST_FILES if last is None or of_change is None else min(last - of_change, _MOST_FILES)
    block, slot = _bounded(change[9:17], _MOST_BLOCKS), _bounded(change[18:22], _MOST_SLOTS)
    return (_MOST_FILES - files << 44) + (block << 16) + (slot << 4) + min(serial or 0, 15)


def _bounded(digits: str, most: int) -> int:
    """Return the number of hexadecimal digits; an invalid number counts as the highest."""
    number = hexadecimal(digits)
    return most if number is None else min(number, most)


def hexadecimal(digits: str) -> int | None:
    """Return the 63-bit number of hexadecimal digits, else None."""
    if not _HEXADECIMAL.fullmatch(digits):
        return None
    number = int(digits, 16)
    return number if number < 1 << 63 else None
