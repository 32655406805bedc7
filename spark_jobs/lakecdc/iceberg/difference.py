"""Files that differ between two snapshots, as scan tasks; files with the same deletes in both are not read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakecdc.iceberg.bulk import DELETE_FILE, java_calls
from lakecdc.iceberg.jvm import jvm
from lakecdc.iceberg.table import IcebergTable, Snapshot

# each needs the plans of two snapshots
_MOST_STRETCHES = 10


@dataclass(frozen=True)
class Difference:
    """Java lists of scan tasks, each with the deletes of its own snapshot.

    :param removed: data files only in the first snapshot.
    :param added: data files only in the second.
    :param before: data files in both with other deletes, with those of the first, if there were any.
    :param after: the same with the deletes of the second.
    :param bytes: size of all these files; one in two of the lists counts twice.
    """

    removed: Any
    added: Any
    before: Any
    after: Any
    bytes: int


def differences(table: IcebergTable, since: Snapshot | None, until: Snapshot) -> list[Difference]:
    """Return the comparisons that together cover two snapshots: one, or one per stretch between rewrites.

    A rewrite (``replace``) changes no row, but all its files differ after it. It is skipped if that reads fewer bytes.

    :param since: None compares with an empty table.
    :param until: if it does not descend from the first, there is one comparison.
    """
    if since is None:
        return [difference(table, None, until.id)]
    whole = [difference(table, since.id, until.id)]
    ways = stretches(since, list(table.ancestors_of(until)))
    if ways is None or ways == [(since.id, until.id)] or len(ways) > _MOST_STRETCHES:
        return whole
    return min(
        whole, [difference(table, *way) for way in ways], key=lambda compared: sum(each.bytes for each in compared)
    )


def stretches(since: Snapshot, ancestors: Sequence[Snapshot]) -> list[tuple[int, int]] | None:
    """Return the stretches from a snapshot to the next rewrite, and onwards; None if it is not an ancestor.

    :param ancestors: of the last snapshot, newest first, including itself.
    :return: ids of the first and the last snapshot of each; empty if only rewrites came since.
    """
    later = list(itertools.takewhile(lambda each: each.id != since.id, ancestors))
    if len(later) == len(ancestors):
        return None
    ways, begin, end = [], since.id, since.id
    for snapshot in reversed(later):
        if snapshot.operation == "replace":
            ways += [(begin, end)] if begin != end else []
            begin = snapshot.id
        end = snapshot.id
    return ways + ([(begin, end)] if begin != end else [])


def difference(table: IcebergTable, since: int | None, until: int) -> Difference:
    """Compare the data files of two snapshots, and the delete files that Iceberg's planning pairs them with.

    :param since: None compares with an empty table.
    :param until: it need not descend from ``since``.
    """
    first, second = _State(table, since), _State(table, until)
    changed = [at for at in first.deletes.keys() & second.deletes.keys() if first.deletes[at] != second.deletes[at]]
    removed, added = first.deletes.keys() - second.deletes.keys(), second.deletes.keys() - first.deletes.keys()
    before, after = ([at for at in changed if state.deletes[at]] for state in (first, second))
    return Difference(
        removed=first.tasks(removed),
        added=second.tasks(added),
        before=first.tasks(before),
        after=second.tasks(after),
        bytes=first.size([*removed, *before]) + second.size([*added, *after]),
    )


class _State:
    """The scan tasks of a snapshot, kept in the JVM, and the deletes of each by the location of its data file."""

    def __init__(self, table: IcebergTable, snapshot_id: int | None) -> None:
        self._calls, self._all = java_calls(table.spark), jvm(table.spark).java.util.ArrayList()
        calls = self._calls
        file = calls.content(calls.file, "location", "fileSizeInBytes")
        # many deletion vectors share a Puffin file, so the location alone does not identify one
        offset = calls.method(DELETE_FILE, "contentOffset")(calls.it)
        deletes = calls.each_delete(*calls.content(calls.it, "location"), offset)
        self.deletes: dict[str, frozenset[tuple[str, int | None]]] = {}
        self._bytes: dict[str, int] = {}
        scan = table.java.newScan().ignoreResiduals()
        planned = calls.parts(scan.useSnapshot(snapshot_id).planFiles()) if snapshot_id is not None else ()
        for part in planned:
            for at, bytes, applying in calls.rows(part, *file, deletes):
                self._bytes[at] = bytes
                self.deletes[at] = frozenset((path, offset) for path, offset in applying)
            self._all.addAll(part)
        self._places = {at: place for place, at in enumerate(self.deletes)}

    def size(self, locations: Iterable[str]) -> int:
        return sum(self._bytes[at] for at in locations)

    def tasks(self, locations: Iterable[str]) -> Any:
        return self._calls.chosen(self._all, [self._places[at] for at in sorted(locations)])
