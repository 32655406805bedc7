"""The files that tell two snapshots apart, as scan tasks: what lies in both with the same deletes is not read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import CONTENT_FILE, DELETE_FILE, FILE_SCAN_TASK, GUAVA, java_calls
from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot

_AT_ONCE = 10_000
# each has two snapshots planned
_MOST_STRETCHES = 10


@dataclass(frozen=True)
class Difference:
    """Java lists of scan tasks, each with the deletes of its own snapshot.

    :param gone: data files of the first snapshot alone.
    :param added: data files of the second alone.
    :param before: data files of both that other deletes apply to, with those of the first, if there were any.
    :param after: the same with the deletes of the second.
    :param bytes: size of all these files; one in two of the lists counts twice.
    """

    gone: Any
    added: Any
    before: Any
    after: Any
    bytes: int


def differences(table: IcebergTable, since: Snapshot | None, until: Snapshot) -> list[Difference]:
    """What together tells two snapshots apart: one comparison, or one of each stretch between rewrites.

    A rewrite (``replace``) changes no row, but all files that it has chosen are others after it. It is left out if
    fewer bytes are to be read then.

    :param since: the first snapshot; None: there was nothing.
    :param until: the second; where it does not descend from the first, there is one comparison.
    """
    if since is None:
        return [difference(table, None, until.id)]
    whole = [difference(table, since.id, until.id)]
    ways = stretches(since, list(table.ancestors_of(until)))
    if ways is None or ways == [(since.id, until.id)] or len(ways) > _MOST_STRETCHES:
        return whole
    return min(whole, [difference(table, *way) for way in ways], key=lambda found: sum(each.bytes for each in found))


def stretches(since: Snapshot, ancestors: Sequence[Snapshot]) -> list[tuple[int, int]] | None:
    """The ways from one snapshot to the next rewrite, and from there on; None if the snapshot is no ancestor.

    :param ancestors: of the snapshot that they lead to, newest first, itself among them.
    :return: ids of the first and the last snapshot of each; none if all that came since is rewrites.
    """
    later = list(itertools.takewhile(lambda each: each.id != since.id, ancestors))
    if len(later) == len(ancestors):
        return None
    found, begin, end = [], since.id, since.id
    for snapshot in reversed(later):
        if snapshot.operation == "replace":
            found += [(begin, end)] if begin != end else []
            begin = snapshot.id
        end = snapshot.id
    return found + ([(begin, end)] if begin != end else [])


def difference(table: IcebergTable, since: int | None, until: int) -> Difference:
    """Compare the data files of two snapshots, and the delete files that Iceberg's planning pairs them with.

    :param since: id of the first snapshot; None: there was nothing.
    :param until: id of the second; neither has to be an ancestor of the other.
    """
    first, second = _State(table, since), _State(table, until)
    changed = [at for at in first.deletes.keys() & second.deletes.keys() if first.deletes[at] != second.deletes[at]]
    gone, added = first.deletes.keys() - second.deletes.keys(), second.deletes.keys() - first.deletes.keys()
    before, after = ([at for at in changed if state.deletes[at]] for state in (first, second))
    return Difference(
        gone=first.tasks(gone),
        added=second.tasks(added),
        before=first.tasks(before),
        after=second.tasks(after),
        bytes=first.size([*gone, *before]) + second.size([*added, *after]),
    )


class _State:
    """The scan tasks of a snapshot, which stay in the JVM, and the deletes of each by the location of its data file."""

    def __init__(self, table: IcebergTable, snapshot_id: int | None) -> None:
        self._calls, self._all = java_calls(table.spark), jvm(table.spark).java.util.ArrayList()
        calls = self._calls
        location, size = (calls.method(CONTENT_FILE, name) for name in ("location", "fileSizeInBytes"))
        file = calls.method(FILE_SCAN_TASK, "file")(calls.it)
        # many deletion vectors share a Puffin file: the location alone does not name one
        name = calls.row(location(calls.it), calls.method(DELETE_FILE, "contentOffset")(calls.it))
        transform = calls.method(f"{GUAVA}.collect.Lists", "transform", "java.util.List", f"{GUAVA}.base.Function")
        deletes = transform(
            calls.method(FILE_SCAN_TASK, "deletes")(calls.it), calls.interface(f"{GUAVA}.base.Function", name)
        )
        self.deletes: dict[str, frozenset[tuple[str, int | None]]] = {}
        self._bytes: dict[str, int] = {}
        scan = table.java.newScan().ignoreResiduals()
        planned = calls.parts(scan.useSnapshot(snapshot_id).planFiles(), _AT_ONCE) if snapshot_id is not None else ()
        for part in planned:
            for at, bytes, applying in calls.rows(part, location(file), size(file), deletes):
                self._bytes[at] = bytes
                self.deletes[at] = frozenset((path, offset) for path, offset in applying)
            self._all.addAll(part)
        self._places = {at: place for place, at in enumerate(self.deletes)}

    def size(self, locations: Iterable[str]) -> int:
        """Bytes of some data files."""
        return sum(self._bytes[at] for at in locations)

    def tasks(self, locations: Iterable[str]) -> Any:
        """Java list of the scan tasks of some data files."""
        return self._calls.chosen(self._all, [self._places[at] for at in sorted(locations)])
