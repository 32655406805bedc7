"""Live delete files of a snapshot, from its delete manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakecdc.iceberg.bulk import DELETE_FILE, PREDICATE, JavaFunction, java_calls
from lakecdc.iceberg.definition import unpartitioned_specs
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import java_list, jvm, listed
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata import names

_FACTS = "content", "location", "specId", "recordCount", "dataSequenceNumber", "equalityFieldIds"
#: unique key of a delete file: location, and offset, because vectors share Puffin files
DeleteKey = tuple[str, int | None]
#: larger than any data sequence number
NEWEST = 2**62
_ADDED, _TOTAL = "added-equality-deletes", "total-equality-deletes"


@dataclass(frozen=True)
class _LiveDelete:
    """A live delete file, by its place in a Java list."""

    java_list: Any = field(repr=False, compare=False)
    place: int = field(repr=False, compare=False)

    @property
    def java(self) -> Any:
        """Return Iceberg's ``DeleteFile``."""
        return self.java_list.get(self.place)


@dataclass(frozen=True)
class EqualityDelete(_LiveDelete):
    """A live equality-delete file.

    :param scope: number of the (spec, partition) it applies to; None if it is global (specification, "Scan Planning").
    :param sequence_number: data sequence number; it applies to data files with a smaller one.
    :param records: rows, that is keys.
    :param field_ids: the equality field ids, in ascending order.
    """

    location: str
    spec_id: int
    scope: int | None
    sequence_number: int
    records: int
    field_ids: tuple[int, ...]

    def reaches(self, scope: int, sequence_number: int) -> bool:
        """Check whether it applies to a data file: an older one and, unless it is global, of its scope."""
        return sequence_number < self.sequence_number and self.scope in (None, scope)


@dataclass(frozen=True)
class PositionDelete(_LiveDelete):
    """A live position-delete file or deletion vector.

    :param scope: number of its (spec, partition), which is that of its data files.
    :param records: deleted positions.
    """

    key: DeleteKey
    spec_id: int
    scope: int
    records: int


class Scopes:
    """Small numbers for (spec id, partition tuple), by Iceberg's own comparison of partition values."""

    def __init__(self, table: IcebergTable) -> None:
        view, self._calls = jvm(table.spark), java_calls(table.spark)
        self._numbers = view.org.apache.iceberg.util.PartitionMap.create(table.java.specs())
        self._next = self._calls.supplier(self._calls.method("java.util.Map", "size")(self._numbers))

    def number(self, file: JavaFunction) -> JavaFunction:
        """Return a function for the number of a content file's scope; equal scopes get equal numbers."""
        types = "int", "org.apache.iceberg.StructLike", "java.util.function.Supplier"
        number_of = self._calls.method("org.apache.iceberg.util.PartitionMap", "computeIfAbsent", *types)
        return number_of(self._numbers, *self._calls.content(file, "specId", "partition"), self._next)


def live_deletes(
    table: IcebergTable, snapshot_id: int, scopes: Scopes, positions: Collection[DeleteKey] = ()
) -> tuple[list[EqualityDelete], list[PositionDelete]]:
    """Return a snapshot's live equality-delete files, including unused ones, and the position deletes to select."""
    view, calls = jvm(table.spark), java_calls(table.spark)
    specs, java = table.java.specs(), view.java.util.ArrayList()
    unpartitioned = unpartitioned_specs(table)
    facts = calls.content(calls.it, *_FACTS)
    facts += [calls.method(DELETE_FILE, "contentOffset")(calls.it), scopes.number(calls.it)]
    is_position = calls.method("java.util.Objects", "equals", OBJECT, OBJECT)(
        view.org.apache.iceberg.FileContent.POSITION_DELETES, facts[0]
    )
    unwanted = calls.interface(PREDICATE, is_position)
    equality, chosen = list[EqualityDelete](), list[PositionDelete]()
    for manifest in listed(table.java.snapshot(snapshot_id).deleteManifests(table.java.io())):
        reader = view.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, table.java.io(), specs)
        for part in calls.parts(reader):
            if not positions:
                part.removeIf(unwanted)
            selected, size = list[int](), int(java.size())
            for place, (content, location, spec_id, records, number, ids, offset, scope) in enumerate(
                calls.rows(part, *facts)
            ):
                at, key = (java, size + len(selected)), (location, offset)
                if content == "EQUALITY_DELETES":
                    reached = None if spec_id in unpartitioned else scope
                    key_ids = tuple(sorted(ids))
                    equality.append(EqualityDelete(*at, location, spec_id, reached, number, records, key_ids))
                elif key in positions:
                    chosen.append(PositionDelete(*at, key, spec_id, scope, records))
                else:
                    continue
                selected.append(place)
            java.addAll(calls.chosen(part, selected))
    return equality, chosen


def equality_deletes(table: IcebergTable, snapshot_id: int) -> list[EqualityDelete]:
    """Return every live equality-delete file of a snapshot."""
    return live_deletes(table, snapshot_id, Scopes(table))[0]


def equality_deletes_at(table: IcebergTable, snapshot: Snapshot, scopes: Scopes) -> list[EqualityDelete]:
    """Return every live equality-delete file of a snapshot, without a search if its summary rules them out."""
    return [] if has_no_equality_deletes(snapshot) else live_deletes(table, snapshot.id, scopes)[0]


def is_equality(delete: Any) -> bool:
    """Check whether a Java ``DeleteFile`` has equality deletes."""
    return str(delete.content().toString()) == "EQUALITY_DELETES"


def deletes_of_tasks(table: IcebergTable, tasks: Iterable[Any], scopes: Scopes) -> list[EqualityDelete]:
    """Return the equality deletes that apply to the data files of scan tasks, each once."""
    distinct = jvm(table.spark).org.apache.iceberg.util.DeleteFileSet.create()
    for task in tasks:
        distinct.addAll(task.deletes())
    return described_deletes(table, filter(is_equality, listed(distinct)), scopes)


def described_deletes(table: IcebergTable, files: Iterable[Any], scopes: Scopes) -> list[EqualityDelete]:
    """Return equality deletes, Java ``DeleteFile`` objects; uncommitted ones are newer than every file."""
    calls, java = java_calls(table.spark), java_list(table.spark, files)
    unpartitioned = unpartitioned_specs(table)
    facts = calls.content(calls.it, *_FACTS[1:])
    return [
        EqualityDelete(
            java,
            place,
            location,
            spec_id,
            None if spec_id in unpartitioned else scope,
            NEWEST if number is None else number,
            records,
            tuple(sorted(ids)),
        )
        for place, (location, spec_id, records, number, ids, scope) in enumerate(
            calls.rows(java, *facts, scopes.number(calls.it))
        )
    ]


def java_deletes(table: IcebergTable, deletes: Sequence[EqualityDelete | PositionDelete]) -> Any:
    """Return a Java list of ``DeleteFile`` objects from one :func:`live_deletes`."""
    if not deletes:
        return jvm(table.spark).java.util.ArrayList()
    return java_calls(table.spark).chosen(deletes[0].java_list, [delete.place for delete in deletes])


def delete_file_set(table: IcebergTable, deletes: Sequence[EqualityDelete | PositionDelete]) -> Any:
    """Return Iceberg's set of delete files, which compares them by location and content."""
    return jvm(table.spark).org.apache.iceberg.util.DeleteFileSet.of(java_deletes(table, deletes))


def has_no_equality_deletes(snapshot: Snapshot) -> bool:
    """Check by the snapshot summary alone that there are no equality deletes; a missing total proves nothing."""
    return snapshot.summary.get(_TOTAL) == "0"


def foreign_deletes(table: IcebergTable, start: Snapshot) -> str | None:
    """Describe equality deletes that a writer other than lakecdc adds or may add to a table; return None without any.

    Such a writer stages its deletes for the partition specs that it knows. If rows move to another one before it
    commits, they stay beside their replacements, and nothing would stop its commit: only ingestion's fence knows where
    rows are.

    :param start: the newest snapshot to check.
    """
    numbers = set[int]()
    for snapshot in table.ancestors_of(start):
        if int(snapshot.summary.get(_ADDED, 0)) and names.COMMIT_ID not in snapshot.summary:
            return f"snapshot {snapshot.id} has equality deletes that another writer added"
        numbers.add(snapshot.sequence_number)
    if names.LAYOUT in table.properties or has_no_equality_deletes(start):
        return None
    if any(delete.sequence_number not in numbers for delete in equality_deletes(table, start.id)):
        return "the table was not created by lakecdc and has equality deletes of expired snapshots"
    return None
