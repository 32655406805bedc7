"""Files of older partition specs: which may move to the current spec, and where to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.definition import current_spec_id, transformed, unpartitioned_specs
from lakecdc.iceberg.live_deletes import foreign_deletes
from lakecdc.iceberg.partition_fields import Fields, partition_fields
from lakecdc.maintain.moving import Destination, group_moving_files
from lakecdc.maintain.selection import apart
from lakecdc.metadata.file_facts import Partitions

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.maintain.selection import Unit


@dataclass(frozen=True)
class BySpec:
    """A table's partitions, by what can happen to their files.

    :param current: of the current spec.
    :param movable: of older specs, whose rows may move to the current one.
    :param fixed: of older specs, whose rows have to stay in theirs.
    :param why: the reason that they stay, as part of a sentence.
    """

    current: Partitions
    movable: Partitions
    fixed: Partitions
    why: str | None = None

    @property
    def older_files(self) -> int:
        """Return the number of files of older specs."""
        return count(self.movable) + count(self.fixed)

    @property
    def remark(self) -> str | None:
        """Describe the files that stay, or return None if there are none."""
        return f"{count(self.fixed)} files of older partition specs stay: {self.why}" if self.fixed else None


def by_spec(table: IcebergTable, start: Snapshot, partitions: Partitions) -> BySpec:
    """Group partitions by spec and by whether their rows may move.

    Rows do not move where another writer adds equality deletes, unless these apply to the whole table.

    :param start: the measured snapshot.
    """
    current, older = apart(partitions, {spec_id for spec_id, _ in partitions} - {current_spec_id(table)})
    movable, fixed = apart(older, {spec_id for spec_id, _ in older} - unpartitioned_specs(table))
    writer = foreign_deletes(table, start) if fixed else None
    if writer is None:
        return BySpec(current, older, {})
    why = f"{writer}, and such a writer's deletes may miss rows that moved to another partition spec"
    return BySpec(current, movable, fixed, why)


def destination(table: IcebergTable, fields: Fields | None = None) -> Destination:
    """Return where rows move to.

    :param fields: of the partition spec; default: the current one's.
    """
    spec_fields = partition_fields(table)[current_spec_id(table)] if fields is None else fields
    return Destination(spec_fields, tuple(transformed(table, f.source_id, f.transform) for f in spec_fields))


def units_of(table: IcebergTable, partitions: Partitions, to: Destination, target: int, max_bytes: int) -> list[Unit]:
    """Group the files of some partitions into units that move together; see :func:`group_moving_files`."""
    return group_moving_files(partitions, partition_fields(table), to, target, max_bytes) if partitions else []


def count(partitions: Partitions) -> int:
    """Count the files of some partitions."""
    return sum(map(len, partitions.values()))


def without(partitions: Partitions, keys: Collection[tuple[int, str]]) -> Partitions:
    """Return the partitions without some keys."""
    return {key: files for key, files in partitions.items() if key not in keys}
