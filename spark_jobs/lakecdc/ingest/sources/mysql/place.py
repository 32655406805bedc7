"""Places in the binary log: a file's number and a byte in it, as one number that grows with the log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"(?<!\d)(\d+)\Z")
FILE_STEP = 1 << 32


@dataclass(frozen=True, order=False)
class Place:
    """A boundary between two transactions.

    :param file: name of the log file, such as ``binlog.000003``.
    :param pos: byte in the file.
    """

    file: str
    pos: int

    @property
    def number(self) -> int:
        """File number times 2^32 plus byte, as Debezium's positions are compared; beyond 4 GiB the byte stands still.

        Only a file's last transaction can lie there, and events of one transaction are told apart by their ordinal.
        """
        return file_number(self.file) * FILE_STEP + min(self.pos, FILE_STEP - 1)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"

    def offsets(self) -> dict[str, Any]:
        """As a position's offsets."""
        return {"file": self.file, "pos": self.pos}


def place_of(offsets: dict[str, Any]) -> Place:
    """The place in a position's offsets."""
    return Place(offsets["file"], int(offsets["pos"]))


def file_number(file: str) -> int:
    """The number at the end of a log file's name, which may outgrow its leading zeros."""
    found = _NUMBER.search(file)
    return int(found.group(1)) if found else 0
