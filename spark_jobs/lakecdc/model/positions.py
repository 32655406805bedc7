"""Encode positions in a database's log: the offsets of sources ``postgres`` and ``mysql``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakecdc.metadata.positions import Position

_NUMBER = re.compile(r"(?<!\d)(\d+)\Z")
FILE_STEP = 1 << 32


def lsn(text: str) -> int:
    """Parse an LSN, such as ``16/B374D848``."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


@dataclass(frozen=True, order=False)
class Place:
    """A boundary between two transactions of a binary log.

    :param file: name of the log file, such as ``binlog.000003``.
    :param pos: byte in the file.
    """

    file: str
    pos: int

    @property
    def number(self) -> int:
        """File number times 2^32 plus byte, as Debezium compares positions; the byte is capped at 4 GiB."""
        # only a file's last transaction goes beyond 4 GiB, and its events differ by their ordinal
        digits = _NUMBER.search(self.file)
        return (int(digits.group(1)) if digits else 0) * FILE_STEP + min(self.pos, FILE_STEP - 1)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


@dataclass(frozen=True, kw_only=True)
class LogPosition(ABC):
    """A table's position in the log of a database; its text is the place, for messages.

    :param epoch: of the order keys.
    :param loaded: number of the place up to which a full load may have read changes already; else 0.
    :param load: progress of a running full load.
    """

    epoch: int = 1
    loaded: int = 0
    load: Mapping[str, Any] | None = None

    @property
    @abstractmethod
    def number(self) -> int:
        """Number of the place; it grows with the log, and all transactions before it are in the table."""

    @property
    def ahead(self) -> int:
        """Return ``loaded`` until the log has been applied up to there, else 0."""
        return self.loaded if self.loaded > self.number else 0

    @abstractmethod
    def encode(self) -> dict[str, Any]:
        """Return the offsets of a :class:`Position`."""

    def _encoded(self, own: Mapping[str, Any], loaded: Any) -> dict[str, Any]:
        more = {"loaded": loaded if self.ahead else None, "load": self.load and dict(self.load)}
        return {name: value for name, value in {**own, "epoch": self.epoch, **more}.items() if value is not None}


@dataclass(frozen=True)
class LsnPosition(LogPosition):
    """A position in the log of a Postgres cluster.

    :param lsn: log sequence number.
    :param oid: of the source table; None if it is not known.
    """

    lsn: int
    oid: int | None = None

    @property
    def number(self) -> int:
        return self.lsn

    def encode(self) -> dict[str, Any]:
        return self._encoded({"lsn": lsn_text(self.lsn), "oid": self.oid}, lsn_text(self.loaded))

    @classmethod
    def of(cls, offsets: Mapping[str, Any]) -> LsnPosition:
        at, loaded = lsn(offsets["lsn"]), lsn(offsets.get("loaded", "0/0"))
        return cls(at, offsets.get("oid"), epoch=int(offsets.get("epoch", 1)), loaded=loaded, load=offsets.get("load"))

    def __str__(self) -> str:
        return lsn_text(self.lsn)


@dataclass(frozen=True)
class BinlogPosition(LogPosition):
    """A position in the binary log of a MySQL or MariaDB server.

    :param gtid: identifier of the last transaction before it, see ``ingest.sources.mysql.events``; empty if unknown.
    :param created: creation time of the log file, in seconds since 1970; None if it is not known.
    """

    place: Place
    gtid: str = ""
    created: int | None = None

    @property
    def number(self) -> int:
        return self.place.number

    def encode(self) -> dict[str, Any]:
        own = {"file": self.place.file, "pos": self.place.pos, "gtid": self.gtid, "created": self.created}
        return self._encoded(own, self.loaded)

    @classmethod
    def of(cls, offsets: Mapping[str, Any]) -> BinlogPosition:
        return cls(
            Place(offsets["file"], int(offsets["pos"])),
            str(offsets.get("gtid", "")),
            offsets.get("created"),
            epoch=int(offsets.get("epoch", 1)),
            loaded=int(offsets.get("loaded", 0)),
            load=offsets.get("load"),
        )

    def __str__(self) -> str:
        return str(self.place)


def log_position(position: Position | None) -> LogPosition | None:
    """Decode a position in a database's log; return None for other sources or no position."""
    if position is None:
        return None
    kinds: dict[str, type[LsnPosition] | type[BinlogPosition]] = {"postgres": LsnPosition, "mysql": BinlogPosition}
    kind = kinds.get(position.source)
    return kind.of(position.offsets) if kind else None
