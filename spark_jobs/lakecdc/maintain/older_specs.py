"""Decide which files of older partition specs may move to the current spec, and where to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakecdc.iceberg.definition import current_spec_id, transformed, unpartitioned_specs
from lakecdc.iceberg.live_deletes import foreign_deletes
from lakecdc.iceberg.partition_fields import Fields, PartitionField, partition_fields
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.geometry import position
from lakecdc.maintain.selection import Unit, apart, cut_files, newest_sequence
from lakecdc.metadata.file_facts import FileFacts, Partitions
from lakecdc.metadata.file_sizes import output_count
from lakecdc.metadata.totals import SMALL_FILE_RATIO


@dataclass(frozen=True)
class BySpec:
    """A table's partitions, by whether their files can move.

    :param movable: partitions of older specs whose rows may move to the current spec.
    :param fixed: partitions of older specs whose rows must stay.
    :param why: why they stay, as part of a sentence.
    """

    current: Partitions
    movable: Partitions
    fixed: Partitions
    why: str | None = None

    @property
    def remark(self) -> str | None:
        """Describe the files that stay, or return None if there are none."""
        return f"{count(self.fixed)} files of older partition specs stay: {self.why}" if self.fixed else None


def by_spec(table: IcebergTable, start: Snapshot, partitions: Partitions) -> BySpec:
    """Group partitions by whether their rows may move: not if others add equality deletes to single partitions."""
    current, older = apart(partitions, {spec_id for spec_id, _ in partitions} - {current_spec_id(table)})
    movable, fixed = apart(older, {spec_id for spec_id, _ in older} - unpartitioned_specs(table))
    writer = foreign_deletes(table, start) if fixed else None
    if writer is None:
        return BySpec(current, older, {})
    why = f"{writer}, and such a writer's deletes may miss rows that moved to another partition spec"
    return BySpec(current, movable, fixed, why)


def destination(table: IcebergTable, fields: Fields | None = None) -> Destination:
    """Return the partition spec to move rows to, by default the current one."""
    spec_fields = partition_fields(table)[current_spec_id(table)] if fields is None else fields
    return Destination(spec_fields, tuple(transformed(table, f.source_id, f.transform) for f in spec_fields))


def count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def without(partitions: Partitions, keys: Collection[tuple[int, str]]) -> Partitions:
    return {key: files for key, files in partitions.items() if key not in keys}


@dataclass(frozen=True)
class Destination:
    """The partition spec to move rows to; ``expressions`` are its partition values as Spark SQL."""

    fields: Fields
    expressions: tuple[str, ...]


def group_moving_files(
    partitions: Partitions, specs: Mapping[int, Fields], to: Destination, target: int, max_bytes: int
) -> list[Unit]:
    """Group all files of some partitions into units to rewrite together, longest unchanged first.

    If only the number of buckets changed, one old bucket is split, or several are merged into one, without touching
    other buckets, because Iceberg's buckets are remainders of one hash. Other rows are distributed by their new
    partition.

    :param max_bytes: maximum bytes to read per unit; a larger file is a separate unit.
    """
    by_spec: dict[int, Partitions] = defaultdict(dict)
    for (spec_id, partition), files in partitions.items():
        by_spec[spec_id][spec_id, partition] = files
    units: list[Unit] = []
    for spec_id, of_spec in by_spec.items():
        change = _bucket_change(specs[spec_id], to)
        if change:
            units += _by_bucket(of_spec, change, to, target, max_bytes)
        else:
            units += _distributed_units(of_spec, to, target, max_bytes)
    return sorted(units, key=lambda unit: newest_sequence(unit.files))


def one_bucket(fields: Fields) -> PartitionField | None:
    """Return the only bucket field of a spec; None if it has none or several."""
    buckets = [field for field in fields if field.buckets]
    return buckets[0] if len(buckets) == 1 else None


def _bucket_change(fields: Fields, to: Destination) -> tuple[PartitionField, PartitionField] | None:
    """Return the bucket fields of two specs that differ only in one bucket count, if one count divides the other."""
    old, new = one_bucket(fields), one_bucket(to.fields)
    if old is None or new is None or old.source_id != new.source_id or _rest(fields, old) != _rest(to.fields, new):
        return None
    many = max(old.buckets or 0, new.buckets or 0)
    if many % (old.buckets or 1) or many % (new.buckets or 1):
        return None
    return old, new


def _rest(fields: Fields, bucket: PartitionField) -> set[tuple[int, str]]:
    return {(field.source_id, field.transform) for field in fields if field != bucket}


def _by_bucket(
    partitions: Partitions, change: tuple[PartitionField, PartitionField], to: Destination, target: int, max_bytes: int
) -> list[Unit]:
    name, (old, new) = change[0].name, (field.buckets or 1 for field in change)
    groups: dict[str, list[FileFacts]] = defaultdict(list)
    for (_, partition), files in partitions.items():
        values = json.loads(partition)
        bucket = values.get(name)
        fed = values | {name: bucket % min(old, new)} if bucket is not None else values
        groups[json.dumps(fed, sort_keys=True)] += files
    pieces = max(new // old, 1)
    piece = f"{to.expressions[to.fields.index(change[1])]} div {old}" if pieces > 1 else None
    units = []
    for files in groups.values():
        for part in cut_files(sorted(files, key=position), max_bytes):
            each = output_count(sum(f.live_bytes for f in part) / pieces, target, SMALL_FILE_RATIO)
            units.append(Unit(tuple(part), each * pieces, pieces, piece))
    return units


def _distributed_units(partitions: Partitions, to: Destination, target: int, max_bytes: int) -> list[Unit]:
    # keep neighbours, such as the hours of a day, together
    files = sorted(
        (f for of_partition in partitions.values() for f in of_partition), key=lambda f: (f.partition, position(f))
    )
    piece = f"xxhash64({', '.join(to.expressions)})" if to.expressions else None
    units = []
    for part in cut_files(files, max_bytes):
        outputs = output_count(sum(f.live_bytes for f in part), target, SMALL_FILE_RATIO)
        units.append(Unit(tuple(part), outputs, outputs if piece else 1, piece))
    return units
