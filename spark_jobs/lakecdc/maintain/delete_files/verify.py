"""Prove before publication (law 14) that Iceberg's reader sees the same rows with the new delete files as before.

The proof shares only the data files with matching and writing. Ordinary scans count rows and hash their places: once
with every committed delete file, and once with the new delete files in place of the removed ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar

from pyspark.sql import DataFrame

from lakecdc.contract.errors import VerificationError
from lakecdc.contract.rewriting import Verify
from lakecdc.iceberg.file_tasks import FileTask, java_tasks, tasks_under
from lakecdc.iceberg.jvm import java_list
from lakecdc.iceberg.live_deletes import EqualityDelete
from lakecdc.iceberg.reader_memory import most_keys
from lakecdc.iceberg.scan import TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.table import DELETES_SHARED, IcebergTable
from lakecdc.iceberg.threads import in_session
from lakecdc.maintain import verify_rows
from lakecdc.maintain.verify_rows import NO_ROWS, Fingerprint, fingerprint, read_back
from lakecdc.metadata.file_sizes import cut

#: sample of data files: this share of the touched files, but at least the minimum
SAMPLE_SHARE, SAMPLE_MINIMUM = 0.05, 3
#: maximum number of rows for which ``auto`` proves all files; Iceberg's reader compares rows with deletes one by one
AUTO_DATA_RECORDS = 10_000_000
#: maximum number of partial reads in a proof, if the reader cannot hold all delete rows at once
PART_READS = 100
R = TypeVar("R")
_PLACES = verify_rows.Proof(("_file", "_pos"), "places of rows")


@dataclass(frozen=True)
class Proof:
    """Scope of a proof: the number of data files read, ``of`` all that the deletes apply to."""

    mode: Verify
    files: int
    of: int


class Proving:
    """The proof of one group. Current rows are read in the background during the conversion.

    :param tasks: every data file that the deletes apply to.
    :param mode: as requested; ``auto`` is ``full`` up to :data:`AUTO_DATA_RECORDS`, and ``full`` becomes ``sample``
        where the deletes do not fit (see :mod:`lakecdc.iceberg.reader_memory`); the proof names the mode used.
    """

    def __init__(
        self, table: IcebergTable, tasks: Sequence[FileTask], mode: Verify, deletes: Sequence[EqualityDelete]
    ) -> None:
        if mode == "auto":
            mode = "full" if sum(task.records for task in tasks) <= AUTO_DATA_RECORDS else "sample"
        most = most_keys(table.spark)
        fits = sum(delete.records for delete in deletes) <= most
        in_parts = not fits or not all(task.paired for task in tasks)
        self._parts = cut(deletes, most, lambda delete: delete.records) if in_parts else []
        self._mode: Verify = "sample" if in_parts and mode != "off" else mode
        self._table, self._tasks, self._chosen = table, tasks, self._choose(tasks)
        self._pool = ThreadPoolExecutor(1, "lakecdc-proof")
        self._before: Future[Fingerprint] | None = None

    def __enter__(self) -> Self:
        # partial reads use memory that the conversion may need
        if self._chosen and not self._parts:
            self._before = self._pool.submit(in_session(self._table.spark, self._digest_before))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def finish(self, changed: Mapping[int, Sequence[Any]]) -> Proof:
        """Complete the proof that no row appears or disappears.

        :param changed: by number of each data file whose position deletes change, the Java ``DeleteFile`` objects that
            will apply to it.
        :raises VerificationError: names the first file that differs.
        """
        if self._chosen:
            after = self._tasks_after(changed)
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

    def _digest_before(self) -> Fingerprint:
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
            # paired by Iceberg's own planning, independent of the conversion
            return java_tasks(self._chosen, "paired")
        having = [task for task in self._chosen if task.others]
        tasks = java_list(self._table.spark, java_tasks(having, "others") if having else [])
        for part in self._parts:
            tasks.addAll(tasks_under(self._table, self._chosen, part))
        return tasks

    def _read(self, tasks: Any, measure: Callable[[DataFrame], R]) -> R:
        """Measure the live rows; in a partial proof the deleted rows, because each part shows only some of them."""
        with staged_tasks(self._table, tasks) as staged:
            rows = read_staged(_uncached(self._table) if self._parts else self._table, staged)
            places = (rows.where("_deleted") if self._parts else rows).select("_file", "_pos")
            return measure(places.distinct() if self._parts else places)

    def _refuse(self, before: Mapping[str, Fingerprint], after: Mapping[str, Fingerprint]) -> NoReturn:
        locations = [task.location for task in self._chosen]
        differing = (name for name in locations if before.get(name, NO_ROWS) != after.get(name, NO_ROWS))
        location = next(differing, locations[0])
        old, new = before.get(location, NO_ROWS).rows, after.get(location, NO_ROWS).rows
        raise VerificationError(
            f"The new delete files would change the rows of the table: {location} has {old} "
            f"{'deleted' if self._parts else 'live'} rows, and would have {new}{' others' if old == new else ''}.",
            table=self._table.name,
            hint="Nothing was published. Please report this.",
            data_file=location,
        )


def _uncached(table: IcebergTable) -> IcebergTable:
    """Return the table in a separate session, whose reads bypass the executors' delete cache."""
    uncached = copy(table)
    uncached.spark = table.spark.newSession()
    uncached.spark.conf.set(DELETES_SHARED, "false")
    return uncached


def digest(places: DataFrame) -> Fingerprint:
    """Compute the digest of rows by file and position, in one pass."""
    return read_back(places, _PLACES)


def digests_by_file(places: DataFrame) -> dict[str, Fingerprint]:
    """Compute the digest of each file; grouping by file names dominates the cost."""
    grouped = _PLACES.hashed(places).groupBy("_file").agg(*_PLACES.measures())
    return {row["_file"]: fingerprint(row) for row in grouped.collect()}
