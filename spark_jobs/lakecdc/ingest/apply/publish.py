"""The commit that all modes but ``merge`` end in: staged files, the positions in the summary, behind the fence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.expressions import every_row, row_filter
from lakecdc.iceberg.staging import discard
from lakecdc.ingest.audit import AuditError
from lakecdc.metadata import names
from lakecdc.runtime import failpoints

if TYPE_CHECKING:
    from typing import Any

    from lakecdc.iceberg.fence import PositionFence
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.ingest.batch import Batch
    from lakecdc.metadata.positions import Position


class OvertakenError(ConflictError):
    """The table has changed so that the batch has to be staged anew: rows have moved to another partition spec, or
    others have committed since it was checked with the batch.
    """


class FloorMovedError(ConflictError):
    """Rows have expired or were erased since the batch was read, which has to be held against what is left."""


@dataclass(frozen=True)
class Applied:
    """What a commit wrote.

    :param data_files: number of data files.
    :param delete_files: number of delete files.
    :param rows: rows in the data files.
    :param bytes: size of all these files.
    :param engine: see :class:`Staged`.
    :param retries: how often the commit was made anew, because another writer came first.
    :param files: the data files, as Iceberg has them; none where a statement has written them.
    """

    snapshot: Snapshot
    data_files: int
    delete_files: int
    rows: int
    bytes: int
    engine: str | None = None
    retries: int = 0
    files: tuple[Any, ...] = ()


@dataclass
class Staged:
    """Files that have been written and not been committed yet.

    :param engine: what wrote the rows of a full load: ``native``, or ``jvm`` and why; None if there was no choice.
    """

    data_files: list[Any] = field(default_factory=list)
    delete_files: list[Any] = field(default_factory=list)
    engine: str | None = None

    @property
    def files(self) -> list[Any]:
        """All of them."""
        return [*self.data_files, *self.delete_files]


@dataclass(frozen=True)
class Commit:
    """Options of a commit: the position to record, and the rows to remove.

    :param position: where the source stands after it.
    :param fence: what it stands behind; of the commit alone.
    :param truncate_order: rows with a lower order key are removed.
    :param replaces: all rows are removed.
    :param note: further entries of the summary.
    :param moment: prefix of the fail points.
    """

    position: Position
    fence: PositionFence
    truncate_order: str | None = None
    replaces: bool = False
    note: Mapping[str, str] = field(default_factory=dict)
    moment: str = ""

    def filter(self, table: IcebergTable) -> object | None:
        """Return the rows that it removes, as Iceberg filters them; None if it removes none."""
        if self.replaces:
            return every_row(table)
        return row_filter(table, ORDER_COLUMN, "lessThan", self.truncate_order) if self.truncate_order else None


def publish(
    table: IcebergTable, stage: Callable[[Staged], None], commit: Commit, batch: Batch | None = None
) -> Applied:
    """Stage files and commit them with a position; a batch's checks and its history come in between.

    :param stage: writes the files and tells them; may write none.
    :param batch: that the files are of: it has to pass its checks, and its history is entered, before the commit.
    :raises AuditError: it has not; its files stay, on a branch.
    :raises OvertakenError: a live row is beyond the equality deletes by now, or the table is not what was checked.
    :raises FloorMovedError: rows have expired or were erased meanwhile.
    :raises ConflictError: another run has moved the positions.
    """
    failpoints.reach(f"{commit.moment}before_staging")
    fence, audit = commit.fence, batch.commit.audit if batch else None
    if audit is not None:
        audit.refuse_bad(table)
    staged = Staged()
    try:
        stage(staged)
        failpoints.reach(f"{commit.moment}after_staging")
        entries = {**position_summary(commit.position), **commit.note}
        changes = RowChanges(staged.data_files, staged.delete_files, summary=entries)
        truncate = commit.filter(table)
        if audit is not None and (staged.files or truncate is not None):
            audit.hold(table, changes, fence, truncate)
        enter_history(batch, commit.moment)
        failpoints.reach(f"{commit.moment}before_commit")
        then = partial(audit.drop_branch, table) if audit is not None else None
        snapshot = append_changes(table, changes, fence, truncate=truncate, tag=names.POSITIONS_TAG, then=then)
    except AuditError:
        raise
    except (InputError, ConflictError) as error:
        # after any other error the commit may have arrived: then the files stay, for orphan removal to judge
        if audit is None or not audit.on_branch:
            discard(table, staged.files)
        if fence.out_of_reach or fence.head_moved:
            raise OvertakenError(error.message, table=table.name, hint=error.hint) from error
        refuse_below_floor(table, fence, error)
        raise
    failpoints.reach(f"{commit.moment}after_commit")
    return Applied(
        snapshot,
        len(staged.data_files),
        len(staged.delete_files),
        sum(int(f.recordCount()) for f in staged.data_files),
        sum(int(f.fileSizeInBytes()) for f in staged.files),
        staged.engine,
        fence.attempts - 1,
        tuple(staged.data_files),
    )


def enter_history(batch: Batch | None, moment: str = "") -> None:
    """Enter the events of a batch into its history table, once only the table's commit can still refuse it.

    :param batch: None for files of none.
    :param moment: prefix of the fail point.
    """
    if batch is not None and batch.commit.enter_history is not None:
        batch.commit.enter_history()
    failpoints.reach(f"{moment}after_side_tables")


def refuse_below_floor(table: IcebergTable, fence: PositionFence, error: InputError | ConflictError) -> None:
    """Tell apart the commit that was refused because rows have expired or were erased meanwhile.

    :raises FloorMovedError: it was.
    """
    if fence.floor_moved:
        raise FloorMovedError(error.message, table=table.name, hint=error.hint) from error


def position_summary(position: Position) -> dict[str, str]:
    """Return what every snapshot of ingest says in its summary."""
    through = {names.READ_THROUGH: position.read_through} if position.read_through else {}
    return {names.POSITIONS: position.encode(), names.JOB: "ingest", **through}


def following(
    position: Position, before: Position | None, *orders: str | None, truncate_order: str | None = None
) -> Position:
    """Return the position after a batch, with what it keeps of the one before.

    :param before: where the table stood.
    :param orders: order keys of the batch.
    :param truncate_order: order key of the TRUNCATE that it applies.
    """
    high = (before.high_order if before else None, *orders, truncate_order)
    truncates = (before.truncate_order if before else None, truncate_order)
    return replace(position, high_order=_highest(high), truncate_order=_highest(truncates))


def _highest(orders: Iterable[str | None]) -> str | None:
    return max((o for o in orders if o), default=None)
