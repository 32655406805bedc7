"""What is handed on in one run over one table, and what every place it goes to can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakecdc.iceberg.table import carrier_of
from lakecdc.metadata.exports import position_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.metadata.positions import Position

JOB = "export_changes"


@dataclass(frozen=True)
class Export:
    """The changes of a table between two snapshots.

    :param since: what was exported last; None: all rows are exported, as inserts.
    :param until: what will be exported then.
    :param changes: as :func:`lakecdc.changes.between` tells them, or :func:`lakecdc.export.steps.steps`.
    :param counts: number of rows by kind of change.
    :param is_steps: the changes are steps, each row with the order key and the time of its event.
    """

    source: IcebergTable
    since: Snapshot | None
    until: Snapshot
    changes: DataFrame
    counts: dict[str, int]
    is_steps: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.counts.values())


class Destination(Protocol):
    """Where changes of one table go. It knows itself how far the table was exported to it."""

    def exported(self) -> int | None:
        """Id of the snapshot up to which the table was exported; None if it never was.

        :raises InputError: the destination is another table's.
        """

    def write(self, export: Export) -> dict[str, Any]:
        """Write changes, and that they are exported, both or neither.

        :return: numbers for the report.
        :raises ConflictError: another run has come first.
        """


def position_at(source: IcebergTable, until: Snapshot) -> Position:
    """Where a table stands that has been made of another one up to a snapshot."""
    carrier = carrier_of(source.ancestors_of(until))
    through = carrier.position.read_through if carrier else None
    return position_of(source.name, source.uuid, until.id, through)
