"""Data files with the deletes that apply to them, as Iceberg's scan planning pairs them, or without some of these."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.bulk import (
    COLLECTION,
    DELETE_FILE,
    GUAVA,
    PART,
    PREDICATE,
    JavaCalls,
    JavaFunction,
    java_calls,
)
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import java_list, jvm
from lakecdc.iceberg.live_deletes import (
    DeleteKey,
    EqualityDelete,
    PositionDelete,
    Scopes,
    delete_file_set,
    java_deletes,
)
from lakecdc.iceberg.scan import TaskBuilder, field_types
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata.file_sizes import cut

#: maximum number of stored pairs of data file and equality delete, each a reference in the driver
MAX_PAIRS = 2_000_000
_FEWEST_AT_ONCE, _PAIRS_AT_ONCE, _OTHERS_AT_ONCE = 100, 10_000_000, 20_000
Form = Literal["paired", "others"]


class OutOfReachError(ConflictError):
    """Rows are in a partition spec that no delete was staged for."""


@dataclass(frozen=True, slots=True)
class FileTask:
    """A data file whose deletes are to be rewritten.

    :param number: short name of the file in data frames.
    :param scope: number of its (spec, partition).
    :param sequence_number: data sequence number.
    :param records: rows, including deleted ones.
    :param others: number of position deletes and deletion vectors that apply.
    :param astray: whether one of its equality deletes is of another scope.
    :param paired: whether Iceberg's task with every delete is stored; it is not if there are too many pairs.
    :param first_row_id: row id of its first row, if it stores none; None in a table without row ids.
    """

    number: int
    location: str
    spec_id: int
    scope: int
    sequence_number: int
    records: int
    others: int
    equality_deletes: int
    astray: bool
    paired: bool
    store: PlannedTasks = field(repr=False, compare=False)
    first_row_id: int | None = None

    @property
    def java(self) -> Any:
        """Return Iceberg's ``DataFile``."""
        return self.store.bare.get(self.number).file()

    def other(self, place: int) -> Any:
        """Return Iceberg's ``DeleteFile`` of a position delete or vector, by :attr:`OtherDelete.place`."""
        return self.store.bare.get(self.number).deletes().get(place)


@dataclass(frozen=True, slots=True)
class OtherDelete:
    """A position-delete file or deletion vector that applies to a data file.

    :param format: as Iceberg names it, such as PUFFIN or PARQUET.
    :param offset: first byte of a vector.
    :param length: bytes of a vector.
    :param file_scoped: whether it names positions of one data file only.
    :param place: among the deletes of the scan task.
    """

    location: str
    format: str
    offset: int | None
    length: int | None
    file_scoped: bool
    place: int

    @property
    def key(self) -> DeleteKey:
        """Return its unique key among all delete files."""
        return self.location, self.offset

    @property
    def for_tasks(self) -> dict[str, Any]:
        """Return what tasks need to read its positions; see :data:`lakecdc.reader.data_files.DELETES`."""
        return {"location": self.location, "format": self.format, "offset": self.offset, "length": self.length}


class PlannedTasks:
    """Iceberg's scan tasks of the planned data files, kept in the JVM at the index of their number."""

    def __init__(self, table: IcebergTable, equality: Sequence[EqualityDelete]) -> None:
        calls, view = java_calls(table.spark), jvm(table.spark)
        self._calls, self._builder = calls, TaskBuilder(table)
        predicates = self._predicates = view.org.apache.iceberg.relocated.com.google.common.base.Predicates
        #: tasks of the first data files with every delete, and of all without the equality deletes
        self.paired, self.bare = view.java.util.ArrayList(), view.java.util.ArrayList()
        #: functions of a task
        self.file, self.deletes = calls.file, calls.deletes
        self._negated = getattr(predicates, "not")
        is_equality = self.among(delete_file_set(table, equality))
        self._equality, self._others = self._those(is_equality), self._those(self._negated(is_equality))

    def among(self, files: Any) -> Any:
        """Return a Java predicate for membership in a set of files."""
        return getattr(self._predicates, "in")(files)

    def facts(self, scopes: Scopes) -> list[JavaFunction]:
        """Return the functions for :class:`FileTask`: location to records, numbers of deletes and equality deletes."""
        facts = self._calls.content(self.file, "location", "specId", "dataSequenceNumber", "recordCount")
        facts.insert(2, scopes.number(self.file))
        return [*facts, self._calls.method(COLLECTION, "size")(self.deletes), self._size_of_equality()]

    def keep(self, tasks: Any, paired: int) -> None:
        """Add a Java list of tasks, storing the first ``paired`` with every delete."""
        self.paired.addAll(tasks.subList(0, paired))
        self.bare.addAll(self._calls.mapped(tasks, self._builder.with_deletes(self._others)))

    def tasks(self, numbers: Iterable[int], form: Form, deletes: Any = None) -> Any:
        """Return a Java list of scan tasks in one of the forms of :func:`java_tasks`, or with those of a Java list."""
        tasks = self._calls.chosen(self.paired if form == "paired" else self.bare, numbers)
        return tasks if deletes is None else self._calls.mapped(tasks, self._builder.with_deletes(deletes))

    def others(self, numbers: Iterable[int]) -> list[tuple[OtherDelete, ...]]:
        """Return the position deletes and deletion vectors of each of the data files."""
        return position_deletes_of(self._calls, self._calls.chosen(self.bare, numbers))

    def without(self, deletes: Any) -> PlannedTasks:
        """Return the tasks as if the equality deletes of a Java set did not apply."""
        left, stay = copy(self), self._those(self._negated(self.among(deletes)))
        left.paired = self._calls.mapped(self.paired, self._builder.with_deletes(stay))
        return left

    def equality_deletes(self, numbers: Iterable[int]) -> Iterator[int]:
        """Yield the number of equality deletes of each of some data files with stored pairs."""
        counts = self._calls.rows(self._calls.chosen(self.paired, numbers), self._size_of_equality())
        return (count for (count,) in counts)

    def reached(self, deletes: Any, tasks: Sequence[FileTask]) -> set[int]:
        """Return the numbers of the data files that deletes of a Java set apply to; all tasks are paired or none is."""
        disjoint = self._calls.method("java.util.Collections", "disjoint", COLLECTION, COLLECTION)
        numbers = [task.number for task in tasks]
        stored = self._calls.chosen(self.paired if tasks[0].paired else self.bare, numbers)
        answers = self._calls.rows(stored, disjoint(deletes, self.deletes))
        return {number for number, (none,) in zip(numbers, answers, strict=True) if not none}

    def under(self, deletes: Any, tasks: Sequence[FileTask]) -> Any:
        """Return a Java list of the paired tasks that deletes of a Java set apply to, with only these deletes."""
        numbers = self.reached(deletes, tasks)
        chosen = [task.number for task in tasks if task.number in numbers]
        return self.tasks(chosen, "paired", self._those(self.among(deletes)))

    def _those(self, predicate: Any) -> JavaFunction:
        types = "java.lang.Iterable", f"{GUAVA}.base.Predicate"
        return self._calls.method(f"{GUAVA}.collect.Iterables", "filter", *types)(self.deletes, predicate)

    def _size_of_equality(self) -> JavaFunction:
        return self._calls.method(f"{GUAVA}.collect.Iterables", "size", "java.lang.Iterable")(self._equality)


def position_deletes_of(calls: JavaCalls, tasks: Any) -> list[tuple[OtherDelete, ...]]:
    """Return the position deletes and deletion vectors of each scan task of a Java list."""
    fields = calls.content(calls.it, "content", "location", "format")
    fields += [calls.method(DELETE_FILE, name)(calls.it) for name in ("contentOffset", "contentSizeInBytes")]
    fields += [calls.method("org.apache.iceberg.util.ContentFileUtil", "isFileScoped", DELETE_FILE)(calls.it)]
    rows = calls.rows(tasks, calls.each_delete(*fields))
    placed = ([[*facts, place] for place, facts in enumerate(deletes)] for (deletes,) in rows)
    return [tuple(OtherDelete(*d) for kind, *d in of_task if kind == "POSITION_DELETES") for of_task in placed]


def java_tasks(tasks: Sequence[FileTask], form: Form) -> Any:
    """Return a Java list of Iceberg's scan tasks, for :func:`lakecdc.iceberg.staging.staged_tasks`.

    :param tasks: at least one, of one plan; with their pairs for ``paired``.
    :param form: their deletes: ``paired``, as Iceberg's planning pairs them; ``others``, position deletes and vectors.
    """
    return tasks[0].store.tasks([task.number for task in tasks], form)


def tasks_under(table: IcebergTable, tasks: Sequence[FileTask], deletes: Sequence[EqualityDelete]) -> Any:
    """Return a Java list of scan tasks with only the equality deletes that apply; files without any are omitted."""
    java, by_place = java_list(table.spark, []), dict[tuple[int, int], list[int]]()
    if paired := [task for task in tasks if task.paired]:
        java.addAll(paired[0].store.under(delete_file_set(table, deletes), paired))
    for task in tasks:
        if task.paired:
            continue
        by_place.setdefault((task.scope, task.sequence_number), []).append(task.number)
    for place, numbers in by_place.items():
        if reaching := [delete for delete in deletes if delete.reaches(*place)]:
            java.addAll(tasks[0].store.tasks(numbers, "others", java_deletes(table, reaching)))
    return java


def parts_by_pairs(tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]) -> list[list[FileTask]]:
    """Cut data files into parts whose pairs with deletes the driver can hold at once."""
    by_scope: dict[int | None, list[int]] = {}
    for delete in sorted(deletes, key=lambda one: one.sequence_number):
        by_scope.setdefault(delete.scope, []).append(delete.sequence_number)

    def pairs(task: FileTask) -> int:
        if task.paired:
            return task.equality_deletes
        applying = (by_scope.get(scope, []) for scope in (task.scope, None))
        return sum(len(numbers) - bisect_right(numbers, task.sequence_number) for numbers in applying)

    return cut(tasks, MAX_PAIRS, pairs)


def others_of(tasks: Iterable[FileTask]) -> dict[int, tuple[OtherDelete, ...]]:
    """Return the position deletes and deletion vectors of data files, by the number of each file with some."""
    by_number: dict[int, tuple[OtherDelete, ...]] = {}
    for part in parts_by_others([task for task in tasks if task.others]):
        numbers = [task.number for task in part]
        by_number |= zip(numbers, part[0].store.others(numbers), strict=True)
    return by_number


def parts_by_others(tasks: Sequence[FileTask]) -> list[list[FileTask]]:
    """Cut data files into parts with limited position deletes, all of which the driver holds at once."""
    return cut(tasks, _OTHERS_AT_ONCE, lambda task: task.others)


def planned_tasks(
    table: IcebergTable,
    snapshot_id: int,
    equality: Sequence[EqualityDelete],
    positions: Sequence[PositionDelete],
    scopes: Scopes,
) -> Iterator[FileTask]:
    """Yield the data files that at least one of the deletes applies to, as paired by Iceberg's scan planning.

    The JVM iterates over all data files of the table by itself: 100,000 take a core between one and five seconds.
    """
    calls, planned = java_calls(table.spark), PlannedTasks(table, equality)
    going: list[EqualityDelete | PositionDelete] = [*equality, *positions]
    disjoint = calls.method("java.util.Collections", "disjoint", COLLECTION, COLLECTION)
    untouched = calls.interface(PREDICATE, disjoint(delete_file_set(table, going), planned.deletes))
    facts = *planned.facts(scopes), _at_home(table, equality, planned, scopes)
    number = pairs = 0
    files = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals().planFiles()
    # answers have latency, and the driver holds all pairs of a part
    size = max(_FEWEST_AT_ONCE, min(PART, _PAIRS_AT_ONCE // max(len(going), 1)))
    for part in _repaired(table, equality, planned, scopes, calls.parts(files, size)):
        part.removeIf(untouched)
        if part.isEmpty():
            continue
        tasks = list[FileTask]()
        for *known, applying, of_equality, home in calls.rows(part, *facts):
            pairs += of_equality
            rest = [applying - of_equality, of_equality, not home, pairs <= MAX_PAIRS, planned]
            tasks.append(FileTask(number, *known, *rest))
            number += 1
        planned.keep(part, sum(task.paired for task in tasks))
        yield from tasks


def tasks_within_reach(
    table: IcebergTable,
    snapshot: Snapshot,
    staged: Sequence[EqualityDelete],
    scopes: Scopes,
    where: Any,
    live: Sequence[EqualityDelete],
) -> Iterator[FileTask]:
    """Yield the data files that uncommitted equality deletes would apply to, with the position deletes that apply.

    :param staged: newer than each file of the snapshot.
    :param where: Iceberg expression; files without such rows are omitted.
    :param live: every equality delete of the snapshot.
    :raises OutOfReachError: rows are in a partition spec that the deletes do not reach.
    """
    calls, planned = java_calls(table.spark), PlannedTasks(table, live)
    reached = Counter(delete.scope for delete in staged)
    everywhere, spec_ids = reached.pop(None, 0), {delete.spec_id for delete in staged}
    key = {field_id for delete in staged for field_id in delete.field_ids}
    # only these columns have bounds, see lakecdc.iceberg.file_bounds
    bounded = java_list(table.spark, [field.name for field in table.fields if field.id in key])
    # first, because names are looked up in the scan's schema, which becomes that of the snapshot
    scan = table.java.newScan().includeColumnStats(bounded).useSnapshot(snapshot.id).filter(where).ignoreResiduals()
    facts, number = (*planned.facts(scopes), *calls.content(planned.file, "firstRowId")), 0
    for part in calls.parts(scan.planFiles()):
        tasks, places = list[FileTask](), list[int]()
        for place, (location, spec_id, scope, sequence, records, applying, equality, first) in enumerate(
            calls.rows(part, *facts)
        ):
            if not everywhere and spec_id not in spec_ids:
                message = f"Rows have moved to the partition spec {spec_id}, which no delete was staged for."
                raise OutOfReachError(message, table=table.name, hint="Nothing was published; run again.")
            if reaching := everywhere + reached[scope]:
                known, counts = (location, spec_id, scope, sequence, records), (applying - equality, reaching)
                tasks.append(
                    FileTask(number, *known, *counts, astray=False, paired=False, store=planned, first_row_id=first)
                )
                places.append(place)
                number += 1
        planned.keep(calls.chosen(part, places), 0)
        yield from tasks


def _at_home(
    table: IcebergTable, equality: Iterable[EqualityDelete], planned: PlannedTasks, scopes: Scopes
) -> JavaFunction:
    """Return a function that checks whether a task's equality deletes are of its scope or of the whole table."""
    calls, view = java_calls(table.spark), jvm(table.spark)
    guava = view.org.apache.iceberg.relocated.com.google.common.collect
    of_a_scope = java_deletes(table, [delete for delete in equality if delete.scope is not None])
    by_scope = guava.Multimaps.index(of_a_scope, calls.interface(f"{GUAVA}.base.Function", scopes.number(calls.it)))
    as_set = calls.method("org.apache.iceberg.util.DeleteFileSet", "of", "java.lang.Iterable")(calls.it)
    sets = guava.Maps.transformValues(by_scope.asMap(), calls.interface(f"{GUAVA}.base.Function", as_set))
    filtered = calls.method(f"{GUAVA}.collect.Collections2", "filter", COLLECTION, f"{GUAVA}.base.Predicate")
    paired = filtered(planned.deletes, planned.among(view.org.apache.iceberg.util.DeleteFileSet.of(of_a_scope)))
    set_of = calls.method("java.util.Map", "getOrDefault", OBJECT, OBJECT)
    # copied, because the view builds a set at each access
    reaching = set_of(view.java.util.HashMap(sets), scopes.number(planned.file), view.java.util.ArrayList())
    return calls.method(COLLECTION, "containsAll", COLLECTION)(reaching, paired)


def _repaired(
    table: IcebergTable, equality: Sequence[EqualityDelete], planned: PlannedTasks, scopes: Scopes, parts: Iterable[Any]
) -> Iterator[Any]:
    """Yield parts of a plan with the equality deletes that planning loses, by the specification's rule without bounds.

    Iceberg compares bounds of uuids as signed numbers, but Parquet writes them unsigned (apache/iceberg #14216, open in
    1.12).
    """
    types = field_types(table, {field_id for delete in equality for field_id in delete.field_ids})
    lost = [delete for delete in equality if "uuid" in map(types.get, delete.field_ids)]
    if not lost:
        yield from parts
        return
    calls, missing = java_calls(table.spark), jvm(table.spark).java.util.HashMap()
    place = scopes.number(planned.file), *calls.content(planned.file, "dataSequenceNumber")
    text = calls.method("java.lang.String", "valueOf", OBJECT)(calls.row(*place))
    missing_of = calls.method("java.util.Map", "getOrDefault", OBJECT, OBJECT)
    concat = calls.method(f"{GUAVA}.collect.Iterables", "concat", "java.lang.Iterable", "java.lang.Iterable")
    # a set, because Iceberg may still have paired some of them
    united = calls.method("org.apache.iceberg.util.DeleteFileSet", "of", "java.lang.Iterable")
    every = united(concat(planned.deletes, missing_of(missing, text, jvm(table.spark).java.util.ArrayList())))
    repaired = calls.interface("java.util.function.UnaryOperator", TaskBuilder(table).with_deletes(every))
    for part in parts:
        for scope, sequence_number in {(*each,) for each in calls.rows(part, *place)}:
            if not missing.containsKey(key := f"[{scope}, {sequence_number}]"):
                reaching = [delete for delete in lost if delete.reaches(scope, sequence_number)]
                missing.put(key, java_deletes(table, reaching))
        part.replaceAll(repaired)
        yield part


def pairs_with(
    table: IcebergTable, deletes: Sequence[EqualityDelete | PositionDelete], tasks: Sequence[FileTask]
) -> frozenset[int]:
    """Return the numbers of the data files that one of the deletes applies to.

    For files without stored pairs, scopes and sequence numbers decide, possibly including too many.
    """
    delete_set, newest = delete_file_set(table, deletes), dict[int | None, int]()
    for delete in deletes:
        if isinstance(delete, EqualityDelete):
            newest[delete.scope] = max(newest.get(delete.scope, 0), delete.sequence_number)
    everywhere = newest.get(None, 0)
    paired, others = [task for task in tasks if task.paired], [task for task in tasks if not task.paired]
    older = {t.number for t in others if t.sequence_number < max(newest.get(t.scope, 0), everywhere)}
    numbers = [part[0].store.reached(delete_set, part) for part in (paired, others) if part]
    return frozenset(older.union(*numbers))


def planned_without(
    table: IcebergTable, tasks: Sequence[FileTask], deletes: Sequence[EqualityDelete]
) -> list[FileTask]:
    """Return the same data files, planned as if these equality deletes did not apply to them."""
    if not tasks or not deletes:
        return list(tasks)
    left = tasks[0].store.without(delete_file_set(table, deletes))
    counts = left.equality_deletes(task.number for task in tasks if task.paired)
    return [replace(t, store=left, equality_deletes=next(counts) if t.paired else t.equality_deletes) for t in tasks]
