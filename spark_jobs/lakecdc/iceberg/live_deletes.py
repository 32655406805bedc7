"""The live delete files of a snapshot, from its delete manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import iterate, jvm, listed

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

#: what names a delete file among all others: location, and offset, because vectors share Puffin files
DeleteKey = tuple[str, int | None]


@dataclass(frozen=True)
class EqualityDelete:
    """A live equality-delete file.

    :param java: Iceberg's ``DeleteFile``.
    :param scope: number of the (spec, partition) it reaches; None if it is global (specification, "Scan Planning").
    :param sequence_number: data sequence number; it reaches data files with a smaller one.
    :param records: rows, that is keys.
    :param field_ids: the equality field ids, in ascending order.
    """

    java: Any
    location: str
    scope: int | None
    sequence_number: int
    records: int
    field_ids: tuple[int, ...]

    def reaches(self, scope: int, sequence_number: int) -> bool:
        """Tell whether it applies to a data file: strictly older, and of the same spec and partition unless global
        (table specification, "Scan Planning")."""
        return sequence_number < self.sequence_number and self.scope in (None, scope)


@dataclass(frozen=True)
class PositionDelete:
    """A live position-delete file or deletion vector.

    :param java: Iceberg's ``DeleteFile``.
    :param key: location and offset.
    :param scope: number of its (spec, partition), which is that of its data files.
    :param records: deleted positions.
    """

    java: Any
    key: DeleteKey
    scope: int
    records: int


class Scopes:
    """Small numbers for (spec id, partition tuple), by Iceberg's own comparison of partition values."""

    def __init__(self, table: IcebergTable) -> None:
        self._specs, self._view = table.java.specs(), jvm(table.spark)
        self._wrappers: dict[int, Any] = {}
        self._numbers: dict[tuple[int, Any], int] = {}

    def number(self, file: Any) -> int:
        """Number of a Java content file's scope; the same scope always gets the same number."""
        spec_id = int(file.specId())
        # py4j hashes and compares Java objects by their own hashCode and equals
        key = (spec_id, self._wrapper(spec_id).copyFor(file.partition()))
        return self._numbers.setdefault(key, len(self._numbers))

    def reached_by(self, delete: Any) -> int | None:
        """Number of the scope an equality delete reaches; None for the whole table."""
        return None if self._specs.get(delete.specId()).isUnpartitioned() else self.number(delete)

    def _wrapper(self, spec_id: int) -> Any:
        if spec_id not in self._wrappers:
            kind = self._specs.get(spec_id).partitionType()
            self._wrappers[spec_id] = self._view.org.apache.iceberg.util.StructLikeWrapper.forType(kind)
        return self._wrappers[spec_id]


def live_deletes(
    table: IcebergTable, snapshot_id: int, scopes: Scopes, positions: Collection[DeleteKey] = ()
) -> tuple[list[EqualityDelete], list[PositionDelete]]:
    """Every live equality-delete file of a snapshot, those that apply to nothing included, and chosen position deletes.

    Costs about ten py4j calls per file that is wanted and three per other one, less than 1 ms.

    :param positions: the position-delete files and deletion vectors that are wanted.
    """
    view = jvm(table.spark)
    equality, chosen = [], []
    for manifest in listed(table.java.snapshot(snapshot_id).deleteManifests(table.java.io())):
        reader = view.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, table.java.io(), table.java.specs())
        for file in iterate(reader):
            if str(file.content().toString()) == "EQUALITY_DELETES":
                equality.append(_equality_delete(file, scopes))
            elif positions and (key := delete_key(file)) in positions:
                chosen.append(PositionDelete(file, key, scopes.number(file), int(file.recordCount())))
    return equality, chosen


def equality_deletes(table: IcebergTable, snapshot_id: int) -> list[EqualityDelete]:
    """Every live equality-delete file of a snapshot."""
    return live_deletes(table, snapshot_id, Scopes(table))[0]


def delete_key(file: Any) -> DeleteKey:
    """What names a Java ``DeleteFile``."""
    offset = file.contentOffset()
    return str(file.location()), None if offset is None else int(offset)


def delete_file_set(table: IcebergTable, deletes: Iterable[EqualityDelete | PositionDelete]) -> Any:
    """Iceberg's set of delete files, which compares them by location and content."""
    found = jvm(table.spark).org.apache.iceberg.util.DeleteFileSet.create()
    for delete in deletes:
        found.add(delete.java)
    return found


def file_scoped(table: IcebergTable, deletes: Iterable[Any]) -> list[Any]:
    """Those position-delete files and deletion vectors that name positions of one data file only."""
    util = jvm(table.spark).org.apache.iceberg.util.ContentFileUtil
    return [delete for delete in deletes if util.isFileScoped(delete)]


def _equality_delete(file: Any, scopes: Scopes) -> EqualityDelete:
    return EqualityDelete(
        file,
        str(file.location()),
        scopes.reached_by(file),
        int(file.dataSequenceNumber()),
        int(file.recordCount()),
        tuple(sorted(int(i) for i in listed(file.equalityFieldIds()))),
    )
