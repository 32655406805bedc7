"""Prepare updates that pyiceberg applies differently from Iceberg's core, so that both produce the same metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyiceberg.exceptions import CommitFailedException

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.object_store.pyiceberg_applier import HINT

_LAST_ADDED = -1
_UNSORTED = 0


class Updates:
    """The updates of one request, prepared one after the other."""

    def __init__(self, base: Any) -> None:
        self._version = base.format_version
        self._sequence, self._next_row = base.last_sequence_number, getattr(base, "next_row_id", None)
        self._schemas = _Numbered("schema_", "schema_id", base.schemas, lambda one, two: bool(one == two))
        specs = _Numbered("spec", "spec_id", base.partition_specs, lambda one, two: one.compatible_with(two))
        orders = _Numbered("sort_order", "order_id", base.sort_orders, lambda one, two: one.fields == two.fields)
        self._removable = {
            "remove-properties": set(base.properties),
            "remove-snapshots": {snapshot.snapshot_id for snapshot in base.snapshots},
            "remove-statistics": {file.snapshot_id for file in base.statistics},
            "remove-partition-statistics": {file.snapshot_id for file in base.partition_statistics},
            "remove-partition-specs": {spec.spec_id for spec in base.partition_specs},
            "remove-schemas": {schema.schema_id for schema in base.schemas},
        }
        #: ids of snapshots that the request adds
        self.added: set[int] = set()
        #: ids of snapshots that it removes
        self.removed: set[int] = set()
        #: added snapshots that it makes current, finally or in between
        self.currents: set[int] = set()

        self._prepared: dict[str, Callable[[Any], Any]] = {
            "upgrade-format-version": self._refuse_upgrade,
            "add-schema": self._add_schema,
            "set-current-schema": self._schemas.choose,
            "add-spec": specs.add,
            "set-default-spec": specs.choose,
            "add-sort-order": orders.add,
            "set-default-sort-order": orders.choose,
            "add-snapshot": self._add_snapshot,
            "set-snapshot-ref": self._set_ref,
            "set-properties": self._set("remove-properties", lambda update: update.updates),
            "set-statistics": self._set("remove-statistics", lambda update: [update.statistics.snapshot_id]),
            "set-partition-statistics": self._set(
                "remove-partition-statistics", lambda update: [update.partition_statistics.snapshot_id]
            ),
            **dict.fromkeys(self._removable, self._remove),
        }

    def prepare(self, update: Any) -> Any:
        """Return an update for pyiceberg; None if it changes nothing."""
        prepared = self._prepared.get(update.action)
        return prepared(update) if prepared else update

    def _refuse_upgrade(self, update: Any) -> None:
        if update.format_version != self._version:
            change = f"from format version {self._version} to {update.format_version}"
            raise UnsupportedError(f"pyiceberg cannot change a table {change}.", hint=HINT)

    def _add_schema(self, update: Any) -> Any:
        update.schema_.check_format_version_compatibility(self._version)
        return self._schemas.add(update)

    def _add_snapshot(self, update: Any) -> Any:
        """Check the numbers of a snapshot; if they are behind the table's, another writer was faster."""
        snapshot = update.snapshot
        if snapshot.snapshot_id in self._removable["remove-snapshots"]:
            raise InputError(f"Snapshot {snapshot.snapshot_id} is already in the table.")
        if snapshot.parent_snapshot_id is not None and (snapshot.sequence_number or 0) <= self._sequence:
            raise CommitFailedException(
                f"Cannot add snapshot {snapshot.snapshot_id} with sequence number {snapshot.sequence_number}: the"
                f" table is at {self._sequence}. Commit again from the current metadata."
            )
        self._sequence = snapshot.sequence_number
        if self._version >= 3:
            self._count_rows(snapshot)
        self.added.add(snapshot.snapshot_id)
        self._removable["remove-snapshots"].add(snapshot.snapshot_id)
        return update

    def _count_rows(self, snapshot: Any) -> None:
        if snapshot.first_row_id is None or snapshot.added_rows is None:
            raise InputError(
                f"Snapshot {snapshot.snapshot_id} has no first-row-id or no added-rows. Format v3 needs both."
            )
        if snapshot.first_row_id < self._next_row:
            raise CommitFailedException(
                f"Cannot add snapshot {snapshot.snapshot_id} with first-row-id {snapshot.first_row_id}: the next row"
                f" of the table is {self._next_row}. Commit again from the current metadata."
            )
        self._next_row += snapshot.added_rows

    def _set_ref(self, update: Any) -> Any:
        if update.ref_name == "main":
            if update.type != "branch":
                raise InputError("Ref main must be a branch, not a tag.")
            self.currents |= self.added & {update.snapshot_id}
        return update

    def _set(self, removal: str, names: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Any]:
        """Return a preparation that lets later updates remove what this one sets."""

        def prepare(update: Any) -> Any:
            self._removable[removal].update(names(update))
            return update

        return prepare

    def _remove(self, update: Any) -> Any:
        """Skip what does not exist; pyiceberg refuses to remove that."""
        action = update.action
        if action in ("remove-statistics", "remove-partition-statistics"):
            return update if update.snapshot_id in self._removable[action] else None
        (name,) = (name for name in type(update).model_fields if name != "action")
        there = [one for one in getattr(update, name) if one in self._removable[action]]
        if action == "remove-snapshots":
            self._remove_snapshots(set(there))
        return update.model_copy(update={name: there}) if there else None

    def _remove_snapshots(self, removed: set[int]) -> None:
        if both := sorted(removed & self.added):
            raise UnsupportedError(f"pyiceberg cannot add and remove snapshot {both[0]} in one request.", hint=HINT)
        self.removed |= removed
        for action in ("remove-snapshots", "remove-statistics"):
            self._removable[action] -= removed


class _Numbered:
    """Schemas, partition specs or sort orders: each has a number, and a duplicate gets the existing one."""

    def __init__(self, member: str, number: str, known: list[Any], same: Callable[[Any, Any], bool]) -> None:
        self._member, self._number, self._same = member, number, same
        self._known = {getattr(one, number): one for one in known}
        self._new: set[int] = set()
        self._last: int | None = None

    def add(self, update: Any) -> Any:
        """Return an ``add-…`` update with the number that the added object gets; None if the table has the same."""
        added = getattr(update, self._member)
        for number, known in self._known.items():
            if self._same(known, added):
                self._last = number if number in self._new else None
                return None
        self._last = self._next(added)
        added = added.model_copy(update={self._number: self._last})
        self._known[self._last] = added
        self._new.add(self._last)
        return update.model_copy(update={self._member: added})

    def _next(self, added: Any) -> int:
        if self._number != "order_id":
            return max(self._known, default=-1) + 1
        # unsorted has the number 0
        return max(self._known, default=_UNSORTED) + 1 if added.fields else _UNSORTED

    def choose(self, update: Any) -> Any:
        """Return a ``set-…`` update with the number of the last one added, if requested."""
        (member,) = (name for name in type(update).model_fields if name != "action")
        if getattr(update, member) != _LAST_ADDED:
            return update
        if self._last is None:
            raise InputError(f"Cannot use the last {self._member.rstrip('_')} added: the request adds none.")
        return update.model_copy(update={member: self._last})
