"""Separate convertible deletes from deletes that stay.

Deletes stay if their keys cannot be matched with certainty, if Iceberg's readers fail on their scope, or if Iceberg
cannot write delete files for it. Each equality delete is independent of the others (table specification, "Scan
Planning"), so one may be converted while another one of the same scope stays. A scope that cannot be read or written to
stays as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.file_tasks import FileTask, pairs_with, planned_without
from lakecdc.iceberg.live_deletes import EqualityDelete, PositionDelete
from lakecdc.iceberg.scan import TaskBuilder, dropped_beyond_readers, field_types, read_staged, specs_losing_partitions
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.debt import doubt

#: scopes named in a report per reason
_NAMED = 10


@dataclass(frozen=True)
class Reason:
    """Reason why deletes stay; if ``readable``, other deletes of their scope may be converted."""

    text: str
    hint: str | None = None
    readable: bool = False


@dataclass(frozen=True)
class Leftover:
    """Delete files that stay for one reason.

    :param field_ids: of the keys of the equality deletes among them.
    :param position_delete_files: number of position-delete files or deletion vectors that should have been merged.
    :param scopes: number of partitions that these apply to; the whole table counts as one.
    :param named_scopes: the first of these scopes.
    """

    reason: Reason
    field_ids: tuple[int, ...]
    spec_ids: tuple[int, ...]
    equality_delete_files: int
    position_delete_files: int
    scopes: int
    named_scopes: tuple[str, ...]

    def remark(self) -> str:
        kinds = {"equality-delete": self.equality_delete_files, "position-delete": self.position_delete_files}
        counts = " and ".join(f"{number} {kind} files" for kind, number in kinds.items() if number)
        return f"{counts} in {self.scopes} scopes stay: {self.reason.text}"

    def facts(self) -> dict[str, Any]:
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return facts | {"reason": self.reason.text}


@dataclass(frozen=True)
class Choice:
    """Decision on the delete files of a snapshot.

    :param deletes: equality deletes to convert; ``positions`` are position deletes to merge.
    :param tasks: the data files that a delete to convert applies to; ``others`` are all others.
    :param rowless: equality deletes without rows, which are removed in every scope.
    :param rowless_positions: the same for position deletes in scopes that stay.
    """

    deletes: list[EqualityDelete] = field(default_factory=list)
    positions: list[PositionDelete] = field(default_factory=list)
    tasks: list[FileTask] = field(default_factory=list)
    others: list[FileTask] = field(default_factory=list)
    rowless: list[EqualityDelete] = field(default_factory=list)
    rowless_positions: list[PositionDelete] = field(default_factory=list)
    leftovers: tuple[Leftover, ...] = ()


def refusal(table: IcebergTable, leftovers: Sequence[Leftover]) -> UnsupportedError:
    reasons = list(dict.fromkeys(leftover.reason for leftover in leftovers))
    return UnsupportedError(
        " ".join(reason.text for reason in reasons),
        table=table.name,
        hint=" ".join(dict.fromkeys(reason.hint for reason in reasons if reason.hint)) or None,
    )


def choose(
    table: IcebergTable,
    snapshot_id: int,
    deletes: Sequence[EqualityDelete],
    positions: Sequence[PositionDelete],
    tasks: Sequence[FileTask],
) -> Choice:
    """Decide which equality deletes are converted, which position deletes are merged, and which stay."""
    lost = specs_losing_partitions(table, snapshot_id)
    keys = _reasons_by_key(table, deletes)
    empty, empty_positions = rowless(table, deletes, positions, lost)
    nothing = {delete.location for delete in empty} | {delete.key for delete in empty_positions}
    rest = [delete for delete in deletes if delete.location not in nothing]
    stuck = _stuck_scopes(lost, [*rest, *positions, *tasks])
    stuck |= _unreadable_scopes([(d, keys[d.field_ids]) for d in rest if d.field_ids in keys], tasks, stuck)
    # a global delete applies to every scope with data files
    everywhere = next((stuck[task.scope] for task in tasks if task.scope in stuck), None)

    def why(delete: EqualityDelete) -> Reason | None:
        return keys.get(delete.field_ids) or (everywhere if delete.scope is None else stuck.get(delete.scope))

    going = [delete for delete in rest if why(delete) is None]
    merged = [p for p in positions if p.scope not in stuck]
    staying = [delete for delete in rest if why(delete) is not None]
    chosen, others = _of(table, tasks, going, merged, [*staying, *empty], stuck)
    staying_positions = [p for p in positions if p.scope in stuck and p.key not in nothing]
    left = [(reason, d) for d in staying if (reason := why(d))] + [(stuck[p.scope], p) for p in staying_positions]
    return Choice(
        going,
        merged,
        chosen,
        others,
        empty,
        [p for p in empty_positions if p.scope in stuck],
        tuple(_leftovers(table, left)),
    )


def _reasons_by_key(table: IcebergTable, deletes: Iterable[EqualityDelete]) -> dict[tuple[int, ...], Reason]:
    """Return why keys cannot be matched with certainty, by the field ids of an equality delete."""
    keys = {delete.field_ids for delete in deletes}
    ids = {field_id for key in keys for field_id in key}
    dropped, types = dropped_beyond_readers(table, ids), field_types(table, ids)
    of_field = {field_id: _reason(field_id, dropped.get(field_id), types[field_id]) for field_id in sorted(ids)}
    by_key = {key: [reason for field_id in key if (reason := of_field[field_id])] for key in keys}
    # readers fail on a key if they fail on one of its fields
    return {key: min(reasons, key=lambda reason: reason.readable) for key, reasons in by_key.items() if reasons}


def _reason(field_id: int, dropped: str | None, kind: str | None) -> Reason | None:
    name = f"The equality-delete key with field id {field_id}"
    if dropped:
        return Reason(
            f"{name} has been dropped from the table and was {dropped}; Iceberg's readers fail on such deletes."
        )
    doubtful = doubt(kind)
    if doubtful == "unreadable":
        what = "is nested or not a top-level column" if kind is None else f"has the type {kind}"
        return Reason(f"{name} {what}; Iceberg's readers cannot apply it.")
    if doubtful == "floating":
        return Reason(
            f"{name} has the type {kind}, and engines disagree on which of its values are equal.",
            "Rewrite the data files instead (compact_data_files), and choose another key.",
            readable=True,
        )
    return None


def _stuck_scopes(lost: Collection[int], items: Iterable[Any]) -> dict[int, Reason]:
    """Return the scopes of specs for which Iceberg can no longer write correct delete files."""
    if not lost:
        return {}
    stuck = {}
    for item in items:
        if item.spec_id in lost:
            stuck[item.scope] = Reason(
                f"Files of partition spec {item.spec_id} are partitioned by a column that was dropped from the table. "
                "Iceberg would write their delete files without a partition, which readers refuse or ignore.",
                "Run compact_data_files to move their rows to the current spec.",
            )
    return stuck


def _unreadable_scopes(
    deletes: Iterable[tuple[EqualityDelete, Reason]], tasks: Iterable[FileTask], known: Collection[int]
) -> dict[int, Reason]:
    """Return the scopes with a data file that an unreadable delete applies to."""
    newest: dict[int | None, tuple[int, Reason]] = {}
    for delete, reason in deletes:
        if not reason.readable and newest.get(delete.scope, (0, reason))[0] < delete.sequence_number:
            newest[delete.scope] = delete.sequence_number, reason
    scopes = {}
    for task in tasks if newest else ():
        for scope in (task.scope, None):
            if scope in newest and task.sequence_number < newest[scope][0] and task.scope not in known:
                scopes[task.scope] = newest[scope][1]
    return scopes


def _of(
    table: IcebergTable,
    tasks: Sequence[FileTask],
    going: Sequence[EqualityDelete],
    merged: Sequence[PositionDelete],
    staying: Sequence[EqualityDelete],
    stuck: Collection[int],
) -> tuple[list[FileTask], list[FileTask]]:
    """Split the data files into files with converted deletes only, and all others."""
    if not staying and not stuck:
        return list(tasks), []
    paired = pairs_with(table, [*going, *merged], tasks)
    chosen: list[FileTask] = []
    others: list[FileTask] = []
    for task in tasks:
        (chosen if task.scope not in stuck and task.number in paired else others).append(task)
    return planned_without(table, chosen, staying), others


def _leftovers(
    table: IcebergTable, left: Sequence[tuple[Reason, EqualityDelete | PositionDelete]]
) -> Iterable[Leftover]:
    by_reason: dict[Reason, list[Any]] = {}
    for reason, delete in left:
        by_reason.setdefault(reason, []).append(delete)
    for reason, deletes in by_reason.items():
        equality = [delete for delete in deletes if isinstance(delete, EqualityDelete)]
        scopes = {delete.scope: delete for delete in deletes}
        yield Leftover(
            reason,
            tuple(sorted({field_id for delete in equality for field_id in delete.field_ids})),
            tuple(sorted({delete.spec_id for delete in deletes})),
            len(equality),
            len(deletes) - len(equality),
            len(scopes),
            tuple(sorted(_name(table, delete) for delete in islice(scopes.values(), _NAMED))),
        )


def _name(table: IcebergTable, delete: Any) -> str:
    if delete.scope is None:
        return "the whole table"
    spec = table.java.specs().get(delete.spec_id)
    return str(spec.partitionToPath(delete.java.partition())) or "no partition"


def rowless(
    table: IcebergTable, deletes: Iterable[EqualityDelete], positions: Iterable[PositionDelete], lost: Collection[int]
) -> tuple[list[EqualityDelete], list[PositionDelete]]:
    """Return the delete files without rows according to both the manifests and the files.

    :param lost: partition specs whose deletes stay, because their manifests must not be rewritten.
    """
    empty = [delete for delete in deletes if not delete.records and delete.spec_id not in lost]
    empty_positions = [delete for delete in positions if not delete.records and delete.spec_id not in lost]
    if not (empty or empty_positions):
        return [], []
    # readers already compare a vector with its count
    both: list[EqualityDelete | PositionDelete] = [*empty, *empty_positions]
    builder = TaskBuilder(table)
    files = [builder.keys_of(d.java) for d in both if str(d.java.format().toString()) != "PUFFIN"]
    if files:
        with staged_tasks(table, files) as staged:
            if not read_staged(table, staged).select("_file").isEmpty():
                return [], []
    return empty, empty_positions
