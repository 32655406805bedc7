"""Refusal of commits of runs that another run has overtaken."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import CommitStateUnknownError
from lakecdc.iceberg.definition import live_spec_ids, unpartitioned_specs
from lakecdc.iceberg.jvm import mapping
from lakecdc.iceberg.refs import now_ms
from lakecdc.metadata import names
from lakecdc.metadata.lease import read_lease

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def stop_at_own(ancestor: Any, mark: str | None) -> None:
    """Stop a commit that finds itself among the ancestors it is validated against.

    A refusal would make Iceberg delete the manifests of a committed snapshot; an exception from a callback deletes
    nothing.

    :param ancestor: Java ``Snapshot``.
    :param mark: the commit's own.
    """
    if mark is not None and ancestor.summary().get(names.COMMIT_ID) == mark:
        raise CommitStateUnknownError(f"The commit arrived as snapshot {ancestor.snapshotId()}.")


class DeleteReach:
    """The partition specs of a batch's equality deletes, which all live rows have to be in.

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


class KnownFloor:
    """Properties on removed rows that a run relied on and that must be unchanged when it commits.

    :param known: value by table property at that time; None if it was unset.
    """

    def __init__(self, table: IcebergTable, known: Mapping[str, str | None]) -> None:
        self._table, self._known = table, known

    def holds(self) -> bool:
        """Check whether the metadata below the next commit still has the same values."""
        properties = self._table.java.operations().current().properties()
        return all(properties.get(name) == value for name, value in self._known.items())


class KnownHead:
    """The head of main that a run relied on and that must be unchanged when it commits.

    :param snapshot_id: None if the table had no snapshot.
    :param truncated: the commit removes rows first, in a separate snapshot.
    """

    def __init__(self, snapshot_id: int | None, *, truncated: bool) -> None:
        self._snapshot_id, self._truncated = snapshot_id, truncated

    def holds(self, head: Any | None) -> bool:
        """Check whether it is still the head.

        :param head: Java ``Snapshot`` before the commit; None if there is none.
        """
        if head is None:
            return self._snapshot_id is None
        return bool((head.parentId() if self._truncated else head.snapshotId()) == self._snapshot_id)


class FloorFence:
    """An Iceberg ``SnapshotAncestryValidator``: no other run has moved the floor since this one read it.

    :ivar mark: the commit's own.
    """

    def __init__(self, floor: KnownFloor) -> None:
        self._floor = floor
        self.mark: str | None = None

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg with the head's ancestors, newest first."""
        iterator = ancestors.iterator()
        if iterator.hasNext():
            stop_at_own(iterator.next(), self.mark)
        return self._floor.holds()

    def errorMessage(self) -> str:
        """Return the reason of a refusal; called by Iceberg after :meth:`validate`."""
        return "another run removed rows of this table meanwhile"

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]


class LeaseFence:
    """An Iceberg ``SnapshotAncestryValidator``: the run still holds the table's lease, and any further validator
    agrees.

    :param then: validates the rest; None if there is nothing more.
    :param mark: the commit's own.
    """

    def __init__(self, table: IcebergTable, then: Any | None, mark: str) -> None:
        self._table, self._token, self._then, self._mark = table, table.lease, then, mark
        self._lost = False

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg with the head's ancestors, newest first."""
        metadata = self._table.java.operations().current()
        current = read_lease(mapping(metadata.properties()))
        # a late renewal may have restored the token
        taken_over = metadata.refs().containsKey(f"{names.LEASE_TAKEN_PREFIX}{self._token}")
        mine = current is not None and current.token == self._token and current.may_be_renewed(now_ms())
        self._lost = taken_over or not mine
        if self._lost:
            iterator = ancestors.iterator()
            while iterator.hasNext():
                stop_at_own(iterator.next(), self._mark)
            return False
        return self._then is None or bool(self._then.validate(ancestors))

    def errorMessage(self) -> str:
        """Return the reason of a refusal; called by Iceberg after :meth:`validate`."""
        if self._lost or self._then is None:
            return "this run's lease of the table has ended, or another run has taken it over"
        return str(self._then.errorMessage())

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]


class PositionFence:
    """An Iceberg ``SnapshotAncestryValidator``: the head's nearest position must be the one the batch started from.

    Iceberg calls it against the refreshed head on every commit attempt, so a run that was paused while another one
    continued cannot commit.

    :param expected: summary text of the position the batch started from; None if there was none.
    :param reach: of the batch's equality deletes, if it has any.
    :param floor: that the batch's rows were checked against; None for a table without one.
    :ivar head: that the batch was checked with; None if only its own rows were.
    :ivar head_moved: whether it was refused because others have committed since.
    :ivar out_of_reach: whether it was refused because of the deletes' reach.
    :ivar floor_moved: whether it was refused because rows have expired or were erased meanwhile.
    :ivar mark: the commit's own.
    :ivar attempts: number of commit attempts.
    """

    def __init__(self, expected: str | None, reach: DeleteReach | None = None, floor: KnownFloor | None = None) -> None:
        self.expected = expected
        self.reach = reach
        self.floor = floor
        self.head: KnownHead | None = None
        self.out_of_reach = self.floor_moved = self.head_moved = False
        self.mark: str | None = None
        self.current_text: str | None = expected
        self.attempts = 0

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg with the head's ancestors, newest first."""
        self.attempts += 1
        iterator = ancestors.iterator()
        self.current_text, head = None, None
        while iterator.hasNext():
            ancestor = iterator.next()
            stop_at_own(ancestor, self.mark)
            head = head or ancestor
            self.current_text = ancestor.summary().get(names.POSITIONS)
            if self.current_text is not None:
                break
        if self.current_text != self.expected:
            return False
        self.floor_moved = self.floor is not None and not self.floor.holds()
        self.head_moved = self.head is not None and not self.head.holds(head)
        if self.floor_moved or self.head_moved:
            return False
        self.out_of_reach = head is not None and self.reach is not None and not self.reach.holds(head)
        return not self.out_of_reach

    def errorMessage(self) -> str:
        """Return the reason of a refusal; called by Iceberg after :meth:`validate`."""
        if self.out_of_reach:
            return "rows have moved to a partition spec that the batch's equality deletes do not reach"
        if self.floor_moved:
            return "rows have expired or were erased since the batch was read"
        if self.head_moved:
            return "others have committed since the table was checked with the batch"
        return "another run has moved the source positions of this table"

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]
