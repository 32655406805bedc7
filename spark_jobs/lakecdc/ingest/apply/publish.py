"""Commit staged files with the positions in the summary, behind the fence, for all modes except ``merge``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg.expressions import every_row, row_filter
from lakecdc.iceberg.file_tasks import OutOfReachError
from lakecdc.ingest.apply.deletes import Deletes, StagedBeforeError
from lakecdc.ingest.audit import AuditError
from lakecdc.metadata import names
from lakecdc.runtime import failpoints

if TYPE_CHECKING:
    from typing import Any

    from lakecdc.iceberg.fence import PositionFence
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.ingest.batch import Batch
    from lakecdc.key_search.places import Places
    from lakecdc.key_search.row_ids import RowIds
    from lakecdc.metadata.positions import Position


class OvertakenError(ConflictError):
    """The table has changed since the batch was staged or checked; it must be staged again."""


class StateMovedError(ConflictError):
    """Rows have changed, expired or were erased since the batch was compared with them; it must be compared again."""


@dataclass
class Staged:
    """Written files before their commit.

    :param written_by: writer of a full load: ``tasks``, or ``Spark`` with the reason; None without a choice.
    :param proven: the deletes leave out keys that the batch inserts, because the table cannot have them.
    :param deletes_left_out: number of these keys; None without a proof.
    :param deletes_kept: why there is no proof; None with a proof, or for a source without proofs.
    """

    data_files: list[Any] = field(default_factory=list)
    delete_files: list[Any] = field(default_factory=list)
    written_by: str | None = None
    proven: bool = False
    deletes_left_out: int | None = None
    deletes_kept: str | None = None

    @property
    def files(self) -> list[Any]:
        return [*self.data_files, *self.delete_files]


@dataclass(frozen=True)
class Applied:
    """The result of a commit.

    :param rows: rows in the data files.
    :param bytes: size of all files.
    :param retries: how often the commit was repeated because another writer was faster.
    :param resolved: statistics of the search for the rows to delete; empty without one.
    :param staged: without files if a statement wrote them.
    """

    snapshot: Snapshot
    data_files: int
    delete_files: int
    rows: int
    bytes: int
    retries: int = 0
    resolved: Mapping[str, int] = field(default_factory=dict)
    staged: Staged = field(default_factory=Staged)


@dataclass(frozen=True)
class Commit:
    """Options of a commit.

    :param position: the source's position after it.
    :param fence: additional fence of this commit.
    :param truncate_order: removes rows with a lower order key.
    :param replaces: removes all rows.
    :param note: further entries of the summary.
    :param moment: prefix of the fail points.
    :param resolves: staged equality deletes are resolved to positions before the commit.
    :param places: known places of some of these rows, from earlier look-ups.
    :param stage_rows: writes the new rows after the search, if they keep row ids.
    """

    position: Position
    fence: PositionFence
    truncate_order: str | None = None
    replaces: bool = False
    note: Mapping[str, str] = field(default_factory=dict)
    moment: str = ""
    resolves: bool = False
    places: Places | None = None
    stage_rows: Callable[[Staged, RowIds | None], None] | None = None

    def filter(self, table: IcebergTable) -> object | None:
        """Return an Iceberg filter of the rows to remove; None if there are none."""
        if self.replaces:
            return every_row(table)
        return row_filter(table, ORDER_COLUMN, "lessThan", self.truncate_order) if self.truncate_order else None


def publish(
    table: IcebergTable, stage: Callable[[Staged], None], commit: Commit, batch: Batch | None = None
) -> Applied:
    """Stage files, check the batch, enter its history, and commit the files with a position.

    :param stage: writes the files, if any.
    :param batch: the batch that the files belong to, if any.
    :raises AuditError: the batch fails its checks; its files stay, on a branch.
    :raises OvertakenError: the deletes do not reach a live row, or the table changed after the checks.
    :raises StateMovedError: rows changed, expired or were erased meanwhile.
    :raises ConflictError: another run has changed the positions.
    """
    failpoints.reach(f"{commit.moment}before_staging")
    fence, audit = commit.fence, batch.commit.audit if batch else None
    if audit is not None:
        audit.refuse_bad(table)
    staged, deletes = Staged(), Deletes(table, commit, {**position_summary(commit.position), **commit.note})
    try:
        stage(staged)
        failpoints.reach(f"{commit.moment}after_staging")
        changes = deletes.find(staged, checked=audit is not None)
        if audit is not None and (staged.files or deletes.truncate is not None):
            audit.hold(table, deletes.base, changes, fence, deletes.truncate)
        enter_history(batch, commit.moment)
        failpoints.reach(f"{commit.moment}before_commit")
        then = partial(audit.drop_branch, table) if audit is not None else None
        snapshot = deletes.publish(staged, then)
    except AuditError:
        raise
    except (InputError, ConflictError) as error:
        # after other errors the commit may have succeeded: keep the files for orphan removal to decide
        if audit is None or not audit.on_branch:
            deletes.discard(staged)
        overtaken = fence.refusal in ("out of reach", "head moved", "rows added")
        if overtaken or isinstance(error, OutOfReachError | StagedBeforeError):
            raise OvertakenError(error.message, table=table.name, hint=error.hint) from error
        refuse_moved_state(table, fence, error)
        raise
    failpoints.reach(f"{commit.moment}after_commit")
    added = deletes.added(staged)
    return Applied(
        snapshot,
        len(staged.data_files),
        len(added),
        sum(int(f.recordCount()) for f in staged.data_files),
        sum(int(f.fileSizeInBytes()) for f in (*staged.data_files, *added)),
        fence.attempts - 1,
        deletes.numbers,
        staged,
    )


def enter_history(batch: Batch | None, moment: str = "") -> None:
    """Add a batch's events to its history table, when only the table's commit can still refuse the batch."""
    if batch is not None and batch.commit.enter_history is not None:
        batch.commit.enter_history()
    failpoints.reach(f"{moment}after_side_tables")


def refuse_moved_state(table: IcebergTable, fence: PositionFence, error: InputError | ConflictError) -> None:
    """Raise StateMovedError if the commit was refused because rows have changed since the comparison."""
    if fence.refusal in ("floor moved", "state changed"):
        raise StateMovedError(error.message, table=table.name, hint=error.hint) from error


def position_summary(position: Position) -> dict[str, str]:
    """Return the summary entries of an ingest snapshot."""
    through = {names.READ_THROUGH: position.table_through} if position.table_through else {}
    return {names.POSITIONS: position.encode(), names.JOB: "ingest", **through}


def following(
    position: Position, before: Position | None, *orders: str | None, truncate_order: str | None = None
) -> Position:
    """Return the position after a batch, with the previous marks raised by its order keys and TRUNCATE."""
    high = (before.high_order if before else None, *orders, truncate_order)
    truncates = (before.truncate_order if before else None, truncate_order)
    highest, truncated = (max(filter(None, marks), default=None) for marks in (high, truncates))
    return replace(position, high_order=highest, truncate_order=truncated)
