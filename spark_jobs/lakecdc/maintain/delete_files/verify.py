"""The proof before publication (law 14): with the new delete files Iceberg's reader sees the same rows as before.

It shares nothing with matching and writing but the data files: rows are counted and their places hashed as an ordinary
scan gives them, once with every committed delete file and once with the new ones in place of those that go.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.delete_cache import stop_sharing_deletes
from lakecdc.iceberg.file_tasks import FileTask, java_tasks
from lakecdc.iceberg.jvm import java_list, listed
from lakecdc.iceberg.live_deletes import java_deletes
from lakecdc.iceberg.scan import TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.threads import in_session
from lakecdc.maintain.delete_files.row_digest import NO_ROWS, Digest, digest, digests_by_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.options import Verify
    from lakecdc.iceberg.live_deletes import EqualityDelete
    from lakecdc.iceberg.table import IcebergTable

#: data files of a sample: this share of those touched, but at least the minimum
SAMPLE_SHARE, SAMPLE_MINIMUM = 0.05, 3
#: rows up to which ``auto`` proves all files; Iceberg's reader compares each row with the deletes, one by one
AUTO_DATA_RECORDS = 10_000_000
#: above this many delete rows the reader, which holds them per task in some 200 bytes each, cannot take them at once
FULL_DELETE_RECORDS = 2_000_000
#: delete rows that it takes at once then, and how many such reads a proof may cost
PART_RECORDS, PART_READS = 1_000_000, 100
R = TypeVar("R")


@dataclass(frozen=True)
class Replacement:
    """A data file and the delete files that will apply to it.

    :param task: the data file as it was planned.
    :param deletes: Java ``DeleteFile`` objects: those that stay and the new one.
    """

    task: FileTask
    deletes: Sequence[Any]


@dataclass(frozen=True)
class Proof:
    """What was proven.

    :param mode: full, sample or off.
    :param files: data files read.
    :param of: data files that the deletes apply to.
    """

    mode: Verify
    files: int
    of: int


class Proving:
    """The proof of one group. The rows as they are now are read in the background while others work.

    :param tasks: every data file that the deletes apply to.
    :param mode: as asked for; ``auto`` is ``full`` up to :data:`AUTO_DATA_RECORDS`, and ``full`` becomes ``sample``
        where the deletes do not fit (see :data:`FULL_DELETE_RECORDS`); the proof says which it was.
    :param deletes: the equality deletes that go.
    """

    def __init__(
        self, table: IcebergTable, tasks: Sequence[FileTask], mode: Verify, deletes: Sequence[EqualityDelete]
    ) -> None:
        if mode == "auto":
            mode = "full" if sum(task.records for task in tasks) <= AUTO_DATA_RECORDS else "sample"
        fits = sum(delete.records for delete in deletes) <= FULL_DELETE_RECORDS
        in_parts = not fits or not all(task.paired for task in tasks)
        self._parts = list(_parts(deletes)) if in_parts else []
        self._mode: Verify = "sample" if in_parts and mode != "off" else mode
        self._table, self._tasks, self._chosen = table, tasks, self._choose(tasks)
        self._pool = ThreadPoolExecutor(1, "lakecdc-proof")
        self._before: Future[Digest] | None = None

    def __enter__(self) -> Self:
        # reading in parts takes memory that the conversion may need
        if self._chosen and not self._parts:
            self._before = self._pool.submit(in_session(self._table.spark, self._digest_before))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def finish(self, replacements: Sequence[Replacement]) -> Proof:
        """Prove that no row appears or disappears.

        :param replacements: of the tasks for which it is not only the equality deletes that go.
        :raises VerificationError: naming the first file that differs.
        """
        if self._chosen:
            after = self._tasks_after({r.task.number: r.deletes for r in replacements})
            old = self._before.result() if self._before else self._digest_before()
            if old != self._read(after, digest):
                self._refuse(self._read(self._tasks_before(), digests_by_file), self._read(after, digests_by_file))
        return Proof(self._mode, len(self._chosen), len(self._tasks))

    def _choose(self, tasks: Sequence[FileTask]) -> list[FileTask]:
        if self._mode != "sample":
            return list(tasks) if self._mode == "full" else []
        size = max(SAMPLE_MINIMUM, round(SAMPLE_SHARE * len(tasks)))
        if self._parts:
            size = max(1, PART_READS // (len(self._parts) + 1))
        return random.sample(list(tasks), min(size, len(tasks)))

    def _digest_before(self) -> Digest:
        return self._read(self._tasks_before(), digest)

    def _tasks_after(self, changed: Mapping[int, Sequence[Any]]) -> Any:
        builder, same = TaskBuilder(self._table), [task for task in self._chosen if task.number not in changed]
        others = [task for task in self._chosen if task.number in changed]
        tasks = java_list(self._table.spark, [builder.task(task.java, changed[task.number]) for task in others])
        if same:
            tasks.addAll(java_tasks(same, "others"))
        return tasks

    def _tasks_before(self) -> Any:
        if not self._parts:
            # as Iceberg's own planning paired them, which no part of the conversion has touched
            return java_tasks(self._chosen, "paired")
        builder, having = TaskBuilder(self._table), [task for task in self._chosen if task.others]
        others = listed(java_tasks(having, "others")) if having else []
        return others + [
            builder.task(task.java, java_deletes(self._table, reaching))
            for task in self._chosen
            for part in self._parts
            if (reaching := [delete for delete in part if delete.reaches(task.scope, task.sequence_number)])
        ]

    def _read(self, tasks: Any, measure: Callable[[DataFrame], R]) -> R:
        """Measure the live rows; of a proof in parts the deleted ones, which each part shows some of."""
        with staged_tasks(self._table, tasks) as staged:
            rows = read_staged(_uncached(self._table) if self._parts else self._table, staged)
            places = rows.where("_deleted").select("_file", "_pos").distinct() if self._parts else rows
            return measure(places)

    def _refuse(self, before: Mapping[str, Digest], after: Mapping[str, Digest]) -> NoReturn:
        locations = [task.location for task in self._chosen]
        differing = (name for name in locations if before.get(name, NO_ROWS) != after.get(name, NO_ROWS))
        location = next(differing, locations[0])
        old, new = before.get(location, NO_ROWS)[0], after.get(location, NO_ROWS)[0]
        raise VerificationError(
            f"The new delete files would change what a reader sees: {location} has {old} "
            f"{'deleted' if self._parts else 'live'} rows, and would have {new}{' others' if old == new else ''}.",
            table=self._table.name,
            hint="Nothing was published. Please report this; until then use the engine 'exact'.",
            data_file=location,
        )


def _uncached(table: IcebergTable) -> IcebergTable:
    """The table in a session of its own, whose reads leave delete files out of the executors' cache."""
    found = copy(table)
    found.spark = table.spark.newSession()
    stop_sharing_deletes(found.spark)
    return found


def _parts(deletes: Sequence[EqualityDelete]) -> Iterator[list[EqualityDelete]]:
    part: list[EqualityDelete] = []
    for delete in deletes:
        if part and sum(d.records for d in part) + delete.records > PART_RECORDS:
            yield part
            part = []
        part.append(delete)
    if part:
        yield part
