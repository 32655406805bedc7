"""Validators of commits: refusal of runs that another run has overtaken."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.contract.errors import CommitStateUnknownError
from lakecdc.iceberg.definition import live_spec_ids, unpartitioned_specs
from lakecdc.iceberg.jvm import mapping, walk
from lakecdc.iceberg.refs import now_ms
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata import names
from lakecdc.metadata.last_write import keeps_rows, may_add_rows
from lakecdc.metadata.lease import read_lease


class CommitValidator:
    """An Iceberg ``SnapshotAncestryValidator``, called against the refreshed head on every commit attempt.

    :ivar mark: the commit's own.
    :ivar message: reason of a refusal.
    """

    mark: str | None = None
    message = ""

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg with the head's ancestors, newest first."""
        raise NotImplementedError

    def errorMessage(self) -> str:
        """Return the reason of a refusal; Iceberg asks after each :meth:`validate`, even one that passes."""
        return self.message

    def stop_at_own(self, ancestor: Any) -> None:
        """Stop a commit that finds itself among the ancestors it is validated against.

        A refusal would make Iceberg delete the manifests of a committed snapshot; an exception deletes nothing.
        """
        if self.mark is not None and ancestor.summary().get(names.COMMIT_ID) == self.mark:
            raise CommitStateUnknownError(f"The commit arrived as snapshot {ancestor.snapshotId()}.")

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]


class DeleteReach:
    """The partition specs of a batch's equality deletes, which must contain all live rows.

    An equality delete applies only to files of its own spec, unless that has no partitions (Iceberg specification, scan
    planning). Rows that a rewrite moved to another spec since the batch was staged would stay.

    :param specs: ids of the deletes' specs: those with live files at the time, and the current one.
    """

    def __init__(self, table: IcebergTable, specs: Collection[int]) -> None:
        self._table, self._specs = table, set(specs)
        self._everywhere = not self._specs.isdisjoint(unpartitioned_specs(table))
        head = table.java.currentSnapshot()
        self._seen = int(head.snapshotId()) if head is not None else None

    def holds(self, head: Any) -> bool:
        """Check whether the deletes apply to all live rows of a Java ``Snapshot``."""
        if self._everywhere or int(head.snapshotId()) == self._seen:
            return True
        return live_spec_ids(self._table, head) <= self._specs


@dataclass(frozen=True)
class KnownFloor:
    """Table properties about removed rows (None if unset) that a run relied on and that may not change meanwhile."""

    table: IcebergTable
    known: Mapping[str, str | None]

    def holds(self) -> bool:
        """Check whether the metadata below the next commit still has the same values."""
        properties = self.table.java.operations().current().properties()
        return all(properties.get(name) == value for name, value in self.known.items())


@dataclass(frozen=True)
class KnownHead:
    """The head of main that a run relied on and that must be unchanged when it commits.

    :param snapshot_id: None if the table had no snapshot.
    :param truncated: the commit removes rows first, in a separate snapshot.
    """

    snapshot_id: int | None
    truncated: bool

    def holds(self, head: Any | None) -> bool:
        """Check whether it is still the head before the commit, given as a Java ``Snapshot`` or None."""
        if head is None:
            return self.snapshot_id is None
        return bool((head.parentId() if self.truncated else head.snapshotId()) == self.snapshot_id)


@dataclass(frozen=True)
class KnownRows:
    """A run's knowledge of which rows a table may have: no other commit may have added rows since.

    :param snapshot_id: of the nearest snapshot with a position; None if the table had no rows.
    :param filled: the snapshot that filled columns, which has added no rows; None if there is none.
    """

    snapshot_id: int | None
    filled: int | None = None

    def hold(self, since: Sequence[Any]) -> bool:
        """Check Java ``Snapshot`` objects from the head to the nearest one with a position, or else to the root."""
        if not since:
            return self.snapshot_id is None
        *added, last = since
        has_position = last.summary().get(names.POSITIONS) is not None
        others = [each for each in (added if has_position else since) if each.snapshotId() != self.filled]
        if any(may_add_rows(each.operation(), each.summary()) for each in others):
            return False
        if has_position:
            return bool(last.snapshotId() == self.snapshot_id)
        return self.snapshot_id is None and last.parentId() is None


@dataclass(frozen=True)
class KnownState:
    """Head of main from which a batch has read rows; the batch can be committed only while no row changes.

    :param snapshot_id: None if the table had no snapshot.
    :param truncated: the commit removes rows first, in a separate snapshot.
    """

    snapshot_id: int | None
    truncated: bool = False

    def holds(self, ancestors: Iterable[tuple[int, str | None, Mapping[str, str]]]) -> bool:
        """Check ids, operations and summaries of snapshots from the head on: since then, files may be rewritten."""
        for snapshot_id, operation, summary in itertools.islice(ancestors, int(self.truncated), None):
            if snapshot_id == self.snapshot_id:
                return True
            if not keeps_rows(operation, summary):
                return False
        return self.snapshot_id is None


def _described(ancestors: Any) -> Iterator[tuple[int, str | None, Mapping[str, str]]]:
    return ((each.snapshotId(), each.operation(), each.summary()) for each in walk(ancestors))


class FloorFence(CommitValidator):
    """Validate that no other run has moved the floor since this one read it."""

    message = "another run removed rows of this table meanwhile"

    def __init__(self, floor: KnownFloor) -> None:
        self._floor = floor

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg."""
        head = next(walk(ancestors), None)
        if head is not None:
            self.stop_at_own(head)
        return self._floor.holds()


class LeaseFence(CommitValidator):
    """Validate that the run still holds the table's lease, and that any further validator agrees."""

    def __init__(self, table: IcebergTable, then: CommitValidator | None, mark: str) -> None:
        self._table, self._token, self._then, self.mark = table, table.lease, then, mark

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg."""
        metadata = self._table.java.operations().current()
        current = read_lease(mapping(metadata.properties()))
        # a late renewal may have restored the token
        taken_over = metadata.refs().containsKey(f"{names.LEASE_TAKEN_PREFIX}{self._token}")
        mine = current is not None and current.token == self._token and current.may_be_renewed(now_ms())
        if taken_over or not mine:
            self.message = "this run's lease of the table has ended, or another run has taken it over"
            for ancestor in walk(ancestors):
                self.stop_at_own(ancestor)
            return False
        if self._then is None or self._then.validate(ancestors):
            return True
        self.message = self._then.message
        return False


Refusal = Literal["floor moved", "head moved", "state changed", "rows added", "out of reach"]
_MESSAGES: dict[Refusal, str] = {
    "floor moved": "rows have expired or were erased since the batch was read",
    "head moved": "others have committed since the table was checked with the batch",
    "state changed": "others have changed rows since the batch was compared with them",
    "rows added": "others may have added rows since the batch was staged",
    "out of reach": "rows have moved to a partition spec that the batch's equality deletes do not reach",
}


class PositionFence(CommitValidator):
    """Validate that the head's nearest position is the one the batch started from.

    So a run that was paused while another one continued cannot commit.

    :param expected: summary text of the position the batch started from; None if there was none.
    :param reach: of the batch's equality deletes, if it has any.
    :param floor: that the batch's rows were checked against; None for a table without one.
    :ivar head: that the batch was checked with; None if only its own rows were.
    :ivar known_rows: that the batch relied on; None if it relied on none.
    :ivar state: of the rows that the batch was merged with or completed from; None if it needed none.
    :ivar refusal: why the last attempt was refused; None also if another run has moved the positions.
    :ivar attempts: number of commit attempts.
    """

    message = "another run has moved the source positions of this table"

    def __init__(self, expected: str | None, reach: DeleteReach | None = None, floor: KnownFloor | None = None) -> None:
        self.expected, self.reach, self.floor = expected, reach, floor
        self.head: KnownHead | None = None
        self.known_rows: KnownRows | None = None
        self.state: KnownState | None = None
        self.refusal: Refusal | None = None
        self.attempts = 0

    @property
    def since(self) -> int | None:
        """Return the id of the head that the batch was checked with; None without one."""
        return self.head.snapshot_id if self.head else None

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg."""
        self.attempts += 1
        self.refusal, self.message = None, PositionFence.message
        position, since = None, list[Any]()
        for ancestor in walk(ancestors):
            self.stop_at_own(ancestor)
            since.append(ancestor)
            position = ancestor.summary().get(names.POSITIONS)
            if position is not None:
                break
        if position != self.expected:
            return False
        self.refusal = next(self._refusals(ancestors, since), None)
        if self.refusal is not None:
            self.message = _MESSAGES[self.refusal]
        return self.refusal is None

    def _refusals(self, ancestors: Any, since: Sequence[Any]) -> Iterator[Refusal]:
        """Yield what forbids the commit; ``since`` are the Java snapshots down to the nearest position."""
        head = since[0] if since else None
        if self.floor is not None and not self.floor.holds():
            yield "floor moved"
        if self.head is not None and not self.head.holds(head):
            yield "head moved"
        if self.state is not None and not self.state.holds(_described(ancestors)):
            yield "state changed"
        if self.known_rows is not None and not self.known_rows.hold(since):
            yield "rows added"
        if head is not None and self.reach is not None and not self.reach.holds(head):
            yield "out of reach"
