"""Turn the log sequence numbers of SQL Server and Db2, as Debezium writes them, into coordinates of the order key.

SQL Server: ``00000027:00000758:0005`` is the number of the virtual log file, the log block (in units of 512 bytes) and
the record's slot in it, hexadecimal. Events are ordered by ``commit_lsn``, ``change_lsn`` and ``event_serial_no``
(Debezium's connector for SQL Server, "source"). Together these are more than 128 bits; what is cut has no use: a log
file has at most 2 TB, in 16 virtual ones or more, and a block of 60 KB at most. From the top::

    position  63 bits  of the commit: virtual log file, block
    ordinal   11 bits  of the commit: slot
               8 bits  virtual log files between change and commit, subtracted from 255
              28 bits  of the change: block
              12 bits  of the change: slot
               4 bits  event_serial_no

Db2: ``IBMSNAP_COMMITSEQ`` and ``IBMSNAP_INTENTSEQ``, hexadecimal: 16 bytes such as
``00000000:000102b5:000000000007bf55``, or 10 of Db2 for z/OS, which look like SQL Server's. Events are ordered by
``commit_lsn`` and ``change_lsn`` (Debezium's connector for Db2, "reading change-data tables"). Changes of a row come in
the order of their commits, so that of commits with the same first half the change decides. From the top::

    position  63 bits  of the commit: its first 8 bytes
    ordinal   60 bits  of the change: its last ones
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DB2_LENGTH, _LENGTH = 34, 22
_HEXADECIMAL = re.compile("[0-9a-fA-F]{1,16}")
_MOST_BLOCKS, _MOST_SLOTS, _MOST_COMMIT_SLOTS, _MOST_FILES = (1 << 28) - 1, (1 << 12) - 1, (1 << 11) - 1, 255


@dataclass(frozen=True, slots=True)
class Lsn:
    """The log sequence numbers of an event.

    :param commit: of the commit, as text; None where the event has none.
    :param change: of the change; None for a row of a snapshot.
    :param serial: SQL Server's ``event_serial_no``.
    :param connector: Debezium's name of the connector, if known.
    """

    commit: str | None
    change: str | None = None
    serial: int | None = None
    connector: str | None = None

    @property
    def position(self) -> int | None:
        """Return the order key's position; None without a log sequence number."""
        if self.commit is None or len(self.commit) not in (_DB2_LENGTH, _LENGTH):
            return None
        return hexadecimal(self.commit[:17].replace(":", ""))

    @property
    def ordinal(self) -> int | None:
        """Return the order key's ordinal; None without a log sequence number."""
        if self.commit is None or len(self.commit) not in (_DB2_LENGTH, _LENGTH):
            return None
        if len(self.commit) == _DB2_LENGTH or self.connector == "db2":
            return hexadecimal((self.change or "").replace(":", "")[-15:]) or 0
        slot = min(hexadecimal(self.commit[18:22]) or 0, _MOST_COMMIT_SLOTS) << 52
        return slot if self.change is None else slot + self._within(self.commit, self.change)

    def _within(self, commit: str, change: str) -> int:
        last, of_change = hexadecimal(commit[:8]), hexadecimal(change[:8])
        files = _MOST_FILES if last is None or of_change is None else min(last - of_change, _MOST_FILES)
        block, slot = hexadecimal(change[9:17]), hexadecimal(change[18:22])
        # what is not a number counts as the highest
        return (
            (_MOST_FILES - files << 44)
            + ((_MOST_BLOCKS if block is None else min(block, _MOST_BLOCKS)) << 16)
            + ((_MOST_SLOTS if slot is None else min(slot, _MOST_SLOTS)) << 4)
            + min(self.serial or 0, 15)
        )


def hexadecimal(digits: str) -> int | None:
    """Return the number of 63 bits that hexadecimal digits mean, else None."""
    if not _HEXADECIMAL.fullmatch(digits):
        return None
    number = int(digits, 16)
    return number if number < 1 << 63 else None
