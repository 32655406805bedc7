"""Files of older partition specs in a table: which may move to the current one, and where that is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.definition import current_spec_id, transformed, unpartitioned_specs
from lakecdc.iceberg.delete_writers import foreign_deletes
from lakecdc.iceberg.partition_fields import Fields, partition_fields
from lakecdc.maintain.moving import Destination, moved
from lakecdc.maintain.selection import apart
from lakecdc.metadata.file_facts import Partitions

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.maintain.selection import Unit


@dataclass(frozen=True)
class BySpec:
    """A table's partitions, by what may become of their files.

    :param current: of the current spec.
    :param movable: of older specs, whose rows may move to the current one.
    :param kept: of older specs, whose rows have to stay in theirs.
    :param why: they have to, as part of a sentence.
    """

    current: Partitions
    movable: Partitions
    kept: Partitions
    why: str | None = None

    @property
    def older_files(self) -> int:
        """Files of older specs."""
        return count(self.movable) + count(self.kept)

    @property
    def remark(self) -> str | None:
        """One sentence for people about files that stay; None if none do."""
        return f"{count(self.kept)} files of older partition specs stay: {self.why}" if self.kept else None


def by_spec(table: IcebergTable, start: Snapshot, partitions: Partitions) -> BySpec:
    """Tell apart which partitions are of older specs, and which of these may change.

    Rows do not move where somebody else writes equality deletes, unless these reach the whole table.

    :param start: the snapshot that was measured.
    """
    current, older = apart(partitions, {spec_id for spec_id, _ in partitions} - {current_spec_id(table)})
    movable, kept = apart(older, {spec_id for spec_id, _ in older} - unpartitioned_specs(table))
    found = foreign_deletes(table, start) if kept else None
    if found is None:
        return BySpec(current, older, {})
    why = f"{found}, and such a writer's deletes may not reach rows that have moved to another partition spec"
    return BySpec(current, movable, kept, why)


def destination(table: IcebergTable, fields: Fields | None = None) -> Destination:
    """Where rows move to.

    :param fields: of the partition spec; default: the current one's.
    """
    wanted = partition_fields(table)[current_spec_id(table)] if fields is None else fields
    return Destination(wanted, tuple(transformed(table, f.source_id, f.transform) for f in wanted))


def units_of(table: IcebergTable, partitions: Partitions, to: Destination, target: int, max_bytes: int) -> list[Unit]:
    """The files of some partitions in the units that they move in; see :func:`moved`."""
    return moved(partitions, partition_fields(table), to, target, max_bytes) if partitions else []


def count(partitions: Partitions) -> int:
    """How many files they have."""
    return sum(map(len, partitions.values()))


def without(partitions: Partitions, keys: Collection[tuple[int, str]]) -> Partitions:
    """The others."""
    return {key: files for key, files in partitions.items() if key not in keys}
