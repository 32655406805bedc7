"""Delete files without rows: they delete nothing, but every reader opens them or refuses the table because of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from lakecdc.iceberg.scan import TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks

if TYPE_CHECKING:
    from lakecdc.iceberg.live_deletes import EqualityDelete, PositionDelete
    from lakecdc.iceberg.table import IcebergTable

D = TypeVar("D", "EqualityDelete", "PositionDelete")


def rowless(
    table: IcebergTable,
    deletes: Iterable[EqualityDelete],
    positions: Iterable[PositionDelete],
    lost: Collection[int],
) -> tuple[list[EqualityDelete], list[PositionDelete]]:
    """Return the delete files without rows, according to both the manifests and the files.

    :param lost: partition specs whose manifests must not be rewritten, so that their deletes stay.
    """
    empty, empty_positions = _counted(deletes, lost), _counted(positions, lost)
    if not (empty or empty_positions):
        return [], []
    # readers already compare a vector with its count
    both: list[EqualityDelete | PositionDelete] = [*empty, *empty_positions]
    files = [d for d in both if str(d.java.format().toString()) != "PUFFIN"]
    if files and _holds_rows(table, files):
        return [], []
    return empty, empty_positions


def _counted(deletes: Iterable[D], lost: Collection[int]) -> list[D]:
    return [d for d in deletes if not d.records and not (lost and d.spec_id in lost)]


def _holds_rows(table: IcebergTable, deletes: Sequence[EqualityDelete | PositionDelete]) -> bool:
    builder = TaskBuilder(table)
    with staged_tasks(table, [builder.keys_of(delete.java) for delete in deletes]) as staged:
        return not read_staged(table, staged).select("_file").isEmpty()
