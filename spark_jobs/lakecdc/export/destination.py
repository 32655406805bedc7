"""The changes exported by one run, and the interface of their destinations."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.metadata.exports import position_of
from lakecdc.metadata.positions import Position

JOB = "export_changes"


@dataclass(frozen=True)
class Export:
    """Changes of a table between two snapshots.

    :param since: the last exported snapshot; None exports all rows as inserts.
    :param changes: of :func:`lakecdc.changes.between` or :func:`lakecdc.export.steps.steps`.
    :param counts: number of rows by kind of change.
    :param is_steps: each row is a step with the order key and the time of its event.
    """

    source: IcebergTable
    since: Snapshot | None
    until: Snapshot
    changes: DataFrame
    counts: dict[str, int]
    is_steps: bool = False

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


def position_at(source: IcebergTable, until: Snapshot) -> Position:
    """Return the position of a table derived from another one up to a snapshot."""
    carrier = carrier_of(source.ancestors_of(until))
    through = carrier.position.read_through if carrier else None
    return position_of(source.name, source.uuid, until.id, through)
