"""The proof before publication (law 14): with the new delete files Iceberg's reader sees the same rows as before.

It shares nothing with matching and writing but the data files: rows are counted and hashed as an ordinary scan gives
them, once with every committed delete file and once with the new ones in place of those that go.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.scan import FileTask, TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks

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
_CACHED = "spark.sql.iceberg.executor-cache.delete-files.enabled"


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


def verify(
    table: IcebergTable, replacements: Sequence[Replacement], mode: Verify, deletes: Sequence[EqualityDelete]
) -> Proof:
    """Prove that no row appears or disappears.

    :param replacements: every data file that the removed deletes apply to, the unchanged ones included.
    :param mode: as asked for; ``auto`` is ``full`` up to :data:`AUTO_DATA_RECORDS`, and ``full`` becomes ``sample``
        where the deletes do not fit (see :data:`FULL_DELETE_RECORDS`); the proof says which it was.
    :param deletes: the equality deletes that go.
    :raises VerificationError: naming the first file that differs.
    """
    if mode == "auto":
        mode = "full" if sum(r.task.records for r in replacements) <= AUTO_DATA_RECORDS else "sample"
    if mode == "off" or not replacements:
        return Proof(mode, 0, len(replacements))
    fits = sum(delete.records for delete in deletes) <= FULL_DELETE_RECORDS
    if fits and all(r.task.planned is not None for r in replacements):
        chosen = list(replacements) if mode == "full" else _sample(replacements)
        _prove_as_planned(table, chosen)
    else:
        mode = "sample"
        chosen = prove_in_parts(table, replacements, deletes)
    return Proof(mode, len(chosen), len(replacements))


def _prove_as_planned(table: IcebergTable, chosen: Sequence[Replacement]) -> None:
    builder = TaskBuilder(table)
    # as Iceberg's own planning paired them, which no part of the conversion has touched
    before = [r.task.planned for r in chosen]
    after = [builder.task(r.task.java, r.deletes) for r in chosen]
    with staged_tasks(table, before) as old, staged_tasks(table, after) as new:
        compare(table, _live(table, old), _live(table, new), chosen, "live")


def _sample(replacements: Sequence[Replacement]) -> list[Replacement]:
    size = max(SAMPLE_MINIMUM, round(SAMPLE_SHARE * len(replacements)))
    return random.sample(list(replacements), min(size, len(replacements)))


def prove_in_parts(
    table: IcebergTable, replacements: Sequence[Replacement], deletes: Sequence[EqualityDelete]
) -> list[Replacement]:
    """Prove a few data files under more deletes than a task can hold: Iceberg's reader takes them part by part.

    :return: the files that were proven.
    :raises VerificationError: naming the first file that differs.
    """
    parts = list(_parts(deletes))
    chosen = random.sample(list(replacements), min(max(1, PART_READS // (len(parts) + 1)), len(replacements)))
    builder = TaskBuilder(table)
    before = [builder.task(r.task.java, r.task.others) for r in chosen if not r.task.others.isEmpty()]
    before += [
        builder.task(r.task.java, reaching)
        for r in chosen
        for part in parts
        if (reaching := [d.java for d in part if d.reaches(r.task.scope, r.task.sequence_number)])
    ]
    after = [builder.task(r.task.java, r.deletes) for r in chosen]
    # each delete file is read for one task or few, and what a cache keeps of it would be in the way of the others
    with staged_tasks(table, before) as old, staged_tasks(table, after) as new, _uncached(table):
        compare(table, _dead(table, old), _dead(table, new), chosen, "deleted")
    return chosen


@contextmanager
def _uncached(table: IcebergTable) -> Iterator[None]:
    """Reads that are planned meanwhile leave delete files out of the executors' cache."""
    conf = table.spark.conf
    before = conf.get(_CACHED, "true")
    conf.set(_CACHED, "false")
    try:
        yield
    finally:
        conf.set(_CACHED, before or "true")


def _parts(deletes: Sequence[EqualityDelete]) -> Iterator[list[EqualityDelete]]:
    part: list[EqualityDelete] = []
    for delete in deletes:
        if part and sum(d.records for d in part) + delete.records > PART_RECORDS:
            yield part
            part = []
        part.append(delete)
    if part:
        yield part


def _dead(table: IcebergTable, staged: str) -> DataFrame:
    """Per file: how many positions are deleted, and two hashes of them."""
    rows = read_staged(table, staged).where("_deleted").select("_file", "_pos").distinct()
    return _digest(rows)


def _live(table: IcebergTable, staged: str) -> DataFrame:
    """Per file: how many rows are alive, and two hashes of their positions in which the order plays no part."""
    return _digest(read_staged(table, staged))


def _digest(rows: DataFrame) -> DataFrame:
    digest = F.xxhash64("_pos")
    # a sum of whole 64-bit hashes would overflow
    low_half = F.sum(digest.bitwiseAND(F.lit(0xFFFFFFFF)))
    return rows.groupBy("_file").agg(F.count("*").alias("rows"), F.bit_xor(digest).alias("x"), low_half.alias("s"))


def compare(table: IcebergTable, before: DataFrame, after: DataFrame, files: Sequence[Replacement], what: str) -> None:
    """Compare the digests of both sides for every file.

    :param what: which rows were digested, for the message.
    :raises VerificationError: naming the first file that differs.
    """
    both = before.withColumn("side", F.lit("before")).unionByName(after.withColumn("side", F.lit("after"))).collect()
    seen: Mapping[str, dict[str, tuple[int, int, int]]] = {"before": {}, "after": {}}
    for row in both:
        seen[row["side"]][row["_file"]] = (row["rows"], row["x"], row["s"])
    for location in (r.task.location for r in files):
        old, new = seen["before"].get(location, (0, 0, 0)), seen["after"].get(location, (0, 0, 0))
        if old != new:
            raise VerificationError(
                f"The new delete files would change what a reader sees: {location} has {old[0]} {what} rows, and "
                f"would have {new[0]}{' others' if old[0] == new[0] else ''}.",
                table=table.name,
                hint="Nothing was published. Please report this; until then use the engine 'exact'.",
                data_file=location,
            )
