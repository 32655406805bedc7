"""The files that tell two snapshots apart, as scan tasks: what lies in both with the same deletes is not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import CONTENT_FILE, DELETE_FILE, FILE_SCAN_TASK, GUAVA, java_calls
from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

_AT_ONCE = 10_000


@dataclass(frozen=True)
class Difference:
    """Java lists of scan tasks, each with the deletes of its own snapshot.

    :param gone: data files of the first snapshot alone.
    :param added: data files of the second alone.
    :param before: data files of both that other deletes apply to, with those of the first.
    :param after: the same files with the deletes of the second.
    """

    gone: Any
    added: Any
    before: Any
    after: Any


def difference(table: IcebergTable, since: int | None, until: int) -> Difference:
    """Compare the data files of two snapshots, and the delete files that Iceberg's planning pairs them with.

    :param since: id of the first snapshot; None: there was nothing.
    :param until: id of the second; neither has to be an ancestor of the other.
    """
    first, second = _State(table, since), _State(table, until)
    changed = [at for at in first.deletes.keys() & second.deletes.keys() if first.deletes[at] != second.deletes[at]]
    return Difference(
        gone=first.tasks(first.deletes.keys() - second.deletes.keys()),
        added=second.tasks(second.deletes.keys() - first.deletes.keys()),
        before=first.tasks(changed),
        after=second.tasks(changed),
    )


class _State:
    """The scan tasks of a snapshot, which stay in the JVM, and the deletes of each by the location of its data file."""

    def __init__(self, table: IcebergTable, snapshot_id: int | None) -> None:
        self._calls, self._all = java_calls(table.spark), jvm(table.spark).java.util.ArrayList()
        calls = self._calls
        location = calls.method(CONTENT_FILE, "location")
        file = calls.method(FILE_SCAN_TASK, "file")(calls.it)
        # many deletion vectors share a Puffin file: the location alone does not name one
        name = calls.row(location(calls.it), calls.method(DELETE_FILE, "contentOffset")(calls.it))
        transform = calls.method(f"{GUAVA}.collect.Lists", "transform", "java.util.List", f"{GUAVA}.base.Function")
        deletes = transform(
            calls.method(FILE_SCAN_TASK, "deletes")(calls.it), calls.interface(f"{GUAVA}.base.Function", name)
        )
        self.deletes: dict[str, frozenset[tuple[str, int | None]]] = {}
        scan = table.java.newScan().ignoreResiduals()
        planned = calls.parts(scan.useSnapshot(snapshot_id).planFiles(), _AT_ONCE) if snapshot_id is not None else ()
        for part in planned:
            for at, applying in calls.rows(part, location(file), deletes):
                self.deletes[at] = frozenset((path, offset) for path, offset in applying)
            self._all.addAll(part)
        self._places = {at: place for place, at in enumerate(self.deletes)}

    def tasks(self, locations: Any) -> Any:
        """Java list of the scan tasks of some data files."""
        return self._calls.chosen(self._all, [self._places[at] for at in sorted(locations)])
