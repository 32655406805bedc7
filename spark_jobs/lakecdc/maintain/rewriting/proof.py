"""Proof of files that tasks have written, from what these have read, and from Iceberg's own reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.rewrite_tasks import read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.local_relation import dealt
from lakecdc.maintain import verify_rows
from lakecdc.maintain.rewriting.row_hash import summed
from lakecdc.maintain.rewriting.tasks import HASH, HashTask, ReadBackTask
from lakecdc.maintain.verify_rows import Fingerprint

if TYPE_CHECKING:
    from pyspark.sql import Row

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.rewriting.ranges import Range
    from lakecdc.maintain.rewriting.tasks import Result

#: what :data:`~lakecdc.reader.data_files.FILE` says of each file, by its location
Facts = Mapping[str, tuple[Any, ...]]
#: of as many files with deletes, Iceberg's reader reads one too
ONE_OF = 16
# places among the facts of a file
_NUMBER, _RECORDS, _DELETES = 0, 4, 6


@dataclass(frozen=True)
class Evidence:
    """What a batch was to read, and what tasks say of it.

    :param tasks: scan tasks by location.
    """

    ranges: Sequence[Range]
    tasks: Mapping[str, Any]
    facts: Facts
    results: Sequence[Result]

    def all_of(self, kind: str) -> list[Result]:
        return [one for one in self.results if one.kind == kind]


def prove(table: IcebergTable, columns: tuple[str, ...], evidence: Evidence) -> None:
    """Raise VerificationError if the new files do not have all live rows of the old ones.

    The rows read, and those deleted, are as many as the metadata says of each file. The rows of the finished files,
    read back, have the hash of those read. Of files with deletes Iceberg's reader reads a sample, which has the same
    rows.

    :param columns: that are hashed; without any, rows are only counted.
    """
    read, written = evidence.all_of("read"), evidence.all_of("written")
    _check_counts(table.name, evidence, read)
    if not columns:
        verify_rows.check(table.name, _fingerprint(read), _fingerprint(written))
        return
    rows = dealt(table.spark, [(one.location,) for one in written], "location string")
    task = ReadBackTask(columns, storage_properties(table))
    finished = rows.mapInArrow(counted(table.spark, task), HASH).collect() if written else []
    verify_rows.check(table.name, _fingerprint(read), _fingerprint(finished))
    with_deletes = [location for location, known in evidence.facts.items() if known[_DELETES]]
    if sample := with_deletes[::ONE_OF]:
        _check_sample(table, columns, evidence, sample)


def _check_counts(name: str, evidence: Evidence, read: Sequence[Result]) -> None:
    rows = Counter[int]()
    for one in read:
        rows[one.number] += one.rows + one.deleted
    wrong = [location for location, known in evidence.facts.items() if rows[known[_NUMBER]] != known[_RECORDS]]
    if wrong or len(read) != len(evidence.ranges):
        raise VerificationError(
            f"{len(read)} of {len(evidence.ranges)} parts of data files were read, and {len(wrong)} files have other "
            f"rows than the metadata says{', such as ' + wrong[0] if wrong else ''}.",
            table=name,
            hint="Nothing was published. If it happens again, check the storage.",
        )


def _check_sample(table: IcebergTable, columns: tuple[str, ...], evidence: Evidence, locations: Sequence[str]) -> None:
    numbers = {evidence.facts[location][_NUMBER] for location in locations}
    ours = _fingerprint([one for one in evidence.all_of("read") if one.number in numbers])
    with staged_tasks(table, [evidence.tasks[location] for location in locations]) as group:
        rows = read_staged(table.spark, group)
        theirs = _fingerprint(rows.mapInArrow(counted(table.spark, HashTask(columns)), HASH).collect())
    if ours != theirs:
        raise VerificationError(
            f"Iceberg's reader finds {theirs.rows} rows in {len(locations)} data files with deletes, "
            f"and tasks {ours.rows}{'' if ours.rows != theirs.rows else ' with other values'}.",
            table=table.name,
            hint="Nothing was published. Report it, with the types of the table's columns.",
        )


def _fingerprint(counted_rows: Iterable[Result | Row]) -> Fingerprint:
    known = list(counted_rows)
    return Fingerprint(sum(one.rows for one in known), (summed(one.hash or 0 for one in known),))
