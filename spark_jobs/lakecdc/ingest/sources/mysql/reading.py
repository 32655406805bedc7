"""Input, limits and summary of a read of the binary log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lakecdc.contract.errors import UnsupportedError
from lakecdc.ingest.sources.log import summary
from lakecdc.ingest.sources.mysql.table_map import Named
from lakecdc.model.positions import FILE_STEP, Place


@dataclass(frozen=True)
class LogTable:
    """One table of a read.

    :param start: see :attr:`Place.number`; events before it are already applied.
    :param key: columns that identify a row, with their names at ``start``, or their current names if ``columns`` is
        unknown.
    :param now: the server's current columns, for logs that do not name them.
    :param columns: names and numbers of the columns at ``start``, in row order; empty if unknown.
    :param loaded: see :attr:`Place.number`; columns renamed or recreated before it changed during the load.
    :param types: Spark SQL types of the target's columns, by their names at ``start``.
    """

    schema: str
    table: str
    start: int
    key: tuple[str, ...]
    excluded: frozenset[str]
    now: tuple[Named, ...]
    columns: tuple[tuple[str, int], ...] = ()
    loaded: int = 0
    types: tuple[tuple[str, str], ...] = ()

    def key_places(self, names: Sequence[str], numbers: Sequence[int]) -> dict[str, int | None]:
        """Return the places of the key's columns in rows; None for a missing one."""
        began = dict(self.columns)
        if not began:
            return {name: names.index(name) if name in names else None for name in self.key}
        return {name: numbers.index(began[name]) if began[name] in numbers else None for name in self.key}


@dataclass(frozen=True)
class Limits:
    """Limits of a read, which ends at the first boundary between transactions that reaches one; 0 is no limit.

    :param stop: see :attr:`Place.number`.
    :param events: row events of the read tables.
    :param transaction: row events of one transaction above which the read fails.
    :param bytes: bytes of log of these row events.
    :param seconds: seconds since the first event, once there is such a row event.
    """

    stop: int
    events: int
    transaction: int = 0
    bytes: int = 0
    seconds: float = 0


@dataclass(frozen=True)
class Relation:
    """A table's columns at one place in the log.

    :param version: counts the different descriptions within one read, from 0.
    :param columns: name, base and Spark type of each.
    :param numbers: numbers of the columns, which stay when they are renamed.
    """

    table: int
    version: int
    columns: tuple[tuple[str, str, str | None], ...]
    numbers: tuple[int, ...] = ()


@dataclass
class Summary(summary.Summary[Relation]):
    """The summary of one read.

    :param file: file and byte of the boundary where it ended.
    :param gtid: the last transaction's identifier; empty if there was none.
    :param seconds: its time, since 1970.
    :param total: row events of wanted tables.
    :param bytes: bytes of log read.
    :param row_bytes: bytes of these row events.
    :param columns: numbers of the columns by their names at the end, in order, for tables that have any.
    :param added: numbers of columns that statements added, by table.
    :param lost: why a table needs a full load.
    :param zero_dates: number of zero dates by table.
    """

    truncate_unit = 1_000_000

    file: str
    pos: int
    gtid: str = ""
    seconds: int = 0
    total: int = 0
    bytes: int = 0
    row_bytes: int = 0
    altered: list[int] = field(default_factory=list)
    columns: dict[int, dict[str, int]] = field(default_factory=dict)
    added: dict[int, list[int]] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    zero_dates: dict[int, int] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return Place(self.file, self.pos)

    @property
    def end(self) -> int:
        # the byte is capped if a file's last transaction ends beyond 4 GiB
        return self.place.number + (self.pos >= FILE_STEP - 1)

    @property
    def event_bytes(self) -> int:
        return self.row_bytes // max(1, self.total)

    def check_parkable(self, table: int) -> None:
        if table in self.lost or table in self.altered:
            raise UnsupportedError("The table was altered, and the columns of its target at that place are unknown.")

    def of_table(self, table: int) -> Summary:
        own, altered = sum(self.events.get(table, {}).values()), [t for t in self.altered if t == table]
        return replace(super().of_table(table), altered=altered, total=own, row_bytes=own * self.event_bytes)
