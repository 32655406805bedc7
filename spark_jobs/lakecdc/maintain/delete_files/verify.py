"""The proof before publication (law 14): with the new delete files Iceberg's reader sees the same rows as before.

It shares nothing with matching and writing but the data files: rows are counted and hashed as an ordinary scan gives
them, once with every committed delete file and once with the new ones in place of those that go.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.scan import FileTask, TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.options import Verify
    from lakecdc.iceberg.table import IcebergTable

#: data files of a sample: this share of those touched, but at least the minimum
SAMPLE_SHARE, SAMPLE_MINIMUM = 0.05, 10
#: above this many delete rows the reader's memory bounds the proof (it holds them per task), and ``full`` samples
FULL_DELETE_RECORDS = 5_000_000


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


def verify(table: IcebergTable, replacements: Sequence[Replacement], mode: Verify, delete_records: int) -> Proof:
    """Prove that no row appears or disappears.

    :param replacements: every data file that the removed equality deletes apply to, the unchanged ones included.
    :param mode: as asked for; ``full`` becomes ``sample`` above :data:`FULL_DELETE_RECORDS`, and the proof says so.
    :param delete_records: rows of the equality deletes that go.
    :raises VerificationError: naming the first file that differs.
    """
    if mode == "full" and delete_records > FULL_DELETE_RECORDS:
        mode = "sample"
    chosen = list(replacements) if mode == "full" else _sample(replacements) if mode == "sample" else []
    if chosen:
        builder = TaskBuilder(table)
        before = [builder.task(r.task.java, [*r.task.equality, *r.task.others]) for r in chosen]
        after = [builder.task(r.task.java, r.deletes) for r in chosen]
        with staged_tasks(table, before) as old, staged_tasks(table, after) as new:
            _compare(table, _live(table, old), _live(table, new), chosen)
    return Proof(mode, len(chosen), len(replacements))


def _sample(replacements: Sequence[Replacement]) -> list[Replacement]:
    size = max(SAMPLE_MINIMUM, round(SAMPLE_SHARE * len(replacements)))
    return random.sample(list(replacements), min(size, len(replacements)))


def _live(table: IcebergTable, staged: str) -> DataFrame:
    """Per file: how many rows are alive, and two hashes of their positions in which the order plays no part."""
    rows = read_staged(table, staged)
    digest = F.xxhash64("_pos")
    # a sum of whole 64-bit hashes would overflow
    low_half = F.sum(digest.bitwiseAND(F.lit(0xFFFFFFFF)))
    return rows.groupBy("_file").agg(F.count("*").alias("rows"), F.bit_xor(digest).alias("x"), low_half.alias("s"))


def _compare(table: IcebergTable, before: DataFrame, after: DataFrame, files: Sequence[Replacement]) -> None:
    both = before.withColumn("side", F.lit("before")).unionByName(after.withColumn("side", F.lit("after"))).collect()
    seen: Mapping[str, dict[str, tuple[int, int, int]]] = {"before": {}, "after": {}}
    for row in both:
        seen[row["side"]][row["_file"]] = (row["rows"], row["x"], row["s"])
    for location in (r.task.location for r in files):
        old, new = seen["before"].get(location, (0, 0, 0)), seen["after"].get(location, (0, 0, 0))
        if old != new:
            raise VerificationError(
                f"The new delete files would change what a reader sees: {location} has {old[0]} live rows, and "
                f"would have {new[0]}{' others' if old[0] == new[0] else ''}.",
                table=table.name,
                hint="Nothing was published. Please report this; until then use the engine 'exact'.",
                data_file=location,
            )
