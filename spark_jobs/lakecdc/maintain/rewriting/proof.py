"""Prove files that tasks have written, from the rows that tasks and Iceberg's own reader have read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.bulk import COLLECTION, FILE_SCAN_TASK, java_calls
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.jvm import java_list
from lakecdc.iceberg.rewrite_tasks import read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.stored_types import table_with, unread_columns
from lakecdc.key_search.bounded import bounded_tasks
from lakecdc.local_relation import spread
from lakecdc.maintain import verify_rows
from lakecdc.maintain.rewriting.row_hash import summed
from lakecdc.maintain.rewriting.tasks import HASH, HashTask, ReadBackTask
from lakecdc.maintain.verify_rows import Fingerprint
from lakecdc.model.iceberg_columns import holds_uuid
from lakecdc.reader.projection import read_columns

if TYPE_CHECKING:
    from pyspark.sql import Row

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.rewriting.ranges import Range
    from lakecdc.maintain.rewriting.tasks import Result

#: rows of :data:`~lakecdc.reader.data_files.FILE`, by location
Facts = Mapping[str, tuple[Any, ...]]
#: Iceberg's reader also reads one in so many files with deletes
ONE_OF = 16
# places among the facts of a file
_NUMBER, _RECORDS = 0, 4
# Iceberg's reader also reads a file without deletes that has at most one in so many of a batch's bytes
_SMALL = 10
# it also reads the smallest file in each of these formats
_LESS_KNOWN = (".avro", ".orc")


@dataclass(frozen=True)
class Evidence:
    """The ranges of a batch, and its tasks' results.

    :param planned: scan tasks of these and other files by location, with the deletes that apply.
    """

    ranges: Sequence[Range]
    planned: Mapping[str, Any]
    facts: Facts
    results: Sequence[Result]

    def all_of(self, kind: str) -> list[Result]:
        """Return the results of one kind."""
        return [one for one in self.results if one.kind == kind]


def prove(table: IcebergTable, columns: tuple[str, ...], evidence: Evidence) -> None:
    """Raise VerificationError unless the new files have exactly the live rows of the old files.

    The numbers of live and deleted rows read from each file must match its metadata. The rows of the finished files,
    read back, must have the hash of the rows read. Iceberg's reader, which applies deletes itself, reads a sample of
    the files with deletes, and a small file without: it must find the same rows.

    :param columns: the hashed columns; without any, rows are only counted.
    """
    read, written = evidence.all_of("read"), evidence.all_of("written")
    _check_counts(table.name, evidence, read)
    if not columns:
        verify_rows.check(table.name, _fingerprint(read), _fingerprint(written))
        return
    rows = spread(table.spark, [(one.location,) for one in written], "location string")
    task = ReadBackTask(columns, storage_properties(table))
    finished = run_tasks(rows, task, HASH).collect() if written else []
    verify_rows.check(table.name, _fingerprint(read), _fingerprint(finished))
    if sample := _sample(table, evidence):
        _check_sample(table, columns, evidence, sample)


def _sample(table: IcebergTable, evidence: Evidence) -> list[str]:
    """Choose files for Iceberg's reader."""
    locations, calls = list(evidence.facts), java_calls(table.spark)
    deletes = calls.method(COLLECTION, "size")(calls.method(FILE_SCAN_TASK, "deletes")(calls.it))
    tasks = java_list(table.spark, [evidence.planned[location] for location in locations])
    counts = dict(zip(locations, (count for (count,) in calls.rows(tasks, deletes)), strict=True))
    files = {one.file.location: one.file for one in evidence.ranges}
    plain = [file for location, file in files.items() if not counts[location]]
    smallest = min(plain, key=lambda file: file.bytes, default=None)
    sample = [location for location in locations if counts[location]][::ONE_OF]
    if smallest is not None and smallest.bytes * _SMALL <= sum(file.bytes for file in files.values()):
        sample.append(smallest.location)
    # the hash cannot show errors of the readers themselves
    for ending in _LESS_KNOWN:
        of_format = [file for file in files.values() if file.location.endswith(ending)]
        sample += [file.location for file in sorted(of_format, key=lambda file: file.bytes)[:1]]
    return list(dict.fromkeys(sample))


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
    read = [one for one in evidence.all_of("read") if one.number in numbers]
    ours = _fingerprint([one._replace(hash=one.sampled) for one in read])
    tasks = [evidence.planned[location] for location in locations]
    fields, sampled = table.schema_fields, sampled_columns(table, columns)
    unread = unread_columns(fields)
    readable = table_with(table, [field for field in fields if field["name"] not in unread]) if unread else None
    uuids = [column.field() for column in read_columns(fields) if column.name in sampled]
    task = HashTask(sampled, tuple(field for field in uuids if holds_uuid(field.type)))
    # a bounded read: its memory is limited
    with bounded_tasks(table, tasks) as bounded, staged_tasks(table, bounded, readable) as group:
        rows = read_staged(table.spark, group)
        theirs = _fingerprint(run_tasks(rows, task, HASH).collect())
    if ours != theirs:
        raise VerificationError(
            f"Iceberg's reader finds {theirs.rows} rows in {len(locations)} data files, "
            f"and tasks {ours.rows}{'' if ours.rows != theirs.rows else ' with other values'}.",
            table=table.name,
            hint="Nothing was published. Report it, with the types of the table's columns.",
        )


def sampled_columns(table: IcebergTable, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the hashed columns that Iceberg's reader in Spark has."""
    unread = unread_columns(table.schema_fields)
    return tuple(name for name in columns if name not in unread)


def _fingerprint(counted_rows: Iterable[Result | Row]) -> Fingerprint:
    known = list(counted_rows)
    return Fingerprint(sum(one.rows for one in known), (summed(one.hash or 0 for one in known),))
