"""Proof of files that tasks have written, from what these have counted and hashed, and from Iceberg's own reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.rewrite_tasks import read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.maintain import verify_rows
from lakecdc.maintain.rewriting.row_hash import summed
from lakecdc.maintain.rewriting.tasks import HASH, HashTask
from lakecdc.maintain.verify_rows import Fingerprint

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.rewriting.ranges import Range
    from lakecdc.maintain.rewriting.tasks import Result
    from lakecdc.maintain.verify_rows import Proof

#: of as many files with deletes, Iceberg's reader reads one too
_ONE_OF = 16
# place of the number of records among the facts of a file after its number
_RECORDS = 3


def prove(
    table: IcebergTable,
    proof: Proof,
    ranges: Sequence[Range],
    tasks: Mapping[str, Any],
    facts: Mapping[str, tuple[Any, ...]],
    results: Sequence[Result],
) -> None:
    """Raise VerificationError if the new files do not have all live rows of the old ones.

    The rows read, and those deleted, are as many as the metadata says of each file. The rows of the finished files have
    the hash of those read. Of the files with deletes Iceberg's reader reads a sample, which has the same rows.
    """
    read = [one for one in results if one.kind == "read"]
    written = [one for one in results if one.kind == "written"]
    _check_counts(table, ranges, facts, read)
    verify_rows.check(table.name, _fingerprint(read), _fingerprint(written))
    with_deletes = [location for location, (*_, deletes) in facts.items() if deletes]
    if proof.columns and with_deletes:
        _check_sample(table, proof, with_deletes[::_ONE_OF], tasks, facts, read)


def _check_counts(
    table: IcebergTable, ranges: Sequence[Range], facts: Mapping[str, tuple[Any, ...]], read: Sequence[Result]
) -> None:
    rows = Counter[int]()
    for one in read:
        rows[one.number] += one.rows + one.deleted
    wrong = [location for location, (number, *known) in facts.items() if rows[number] != known[_RECORDS]]
    if wrong or len(read) != len(ranges):
        raise VerificationError(
            f"{len(read)} of {len(ranges)} parts of data files were read, and {len(wrong)} files have other rows than "
            f"the metadata says{', such as ' + wrong[0] if wrong else ''}.",
            table=table.name,
            hint="Nothing was published. If it happens again, check the storage.",
        )


def _check_sample(
    table: IcebergTable,
    proof: Proof,
    locations: Sequence[str],
    tasks: Mapping[str, Any],
    facts: Mapping[str, tuple[Any, ...]],
    read: Sequence[Result],
) -> None:
    numbers = {facts[location][0] for location in locations}
    ours = _fingerprint([one for one in read if one.number in numbers])
    with staged_tasks(table, [tasks[location] for location in locations]) as group:
        rows = read_staged(table.spark, group)
        parts = rows.mapInArrow(counted(table.spark, HashTask(proof.columns)), HASH).collect()
    theirs = Fingerprint(sum(part["rows"] for part in parts), (summed(part["hash"] for part in parts),))
    if ours != theirs:
        raise VerificationError(
            f"Iceberg's reader finds {theirs.rows} rows in {len(locations)} data files with deletes, "
            f"and tasks {ours.rows}{'' if ours.rows != theirs.rows else ' with other values'}.",
            table=table.name,
            hint="Nothing was published. Report it, with the types of the table's columns.",
        )


def _fingerprint(results: Sequence[Result]) -> Fingerprint:
    return Fingerprint(sum(one.rows for one in results), (summed(one.hash for one in results),))
