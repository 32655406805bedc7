"""What the metadata says about each data file: size, deleted rows, where it lies in the sort order."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakecdc.metadata.live_files import Content, LiveFile
from lakecdc.metadata.overlap import Box, KeyRange, column_range, lexicographic_ends


@dataclass(frozen=True)
class FileFacts:
    """One live data file.

    :param spec_id: its partition spec.
    :param partition: its partition tuple as text; with the spec id the name of its partition.
    :param bytes: file size.
    :param data_bytes: the part of it that is columns, without footer and indexes.
    :param rows: rows in it, deleted ones included.
    :param deleted: rows that position deletes and deletion vectors of this very file delete.
    :param lower: where it begins in the measured order, None if unknown.
    :param upper: where it ends.
    :param keyless: the columns of the order are null in every row.
    :param added_by: snapshot that added the file.
    :param sequence: data sequence number.
    :param equality_deletes: equality-delete files that apply to it, by partition and sequence number alone.
    :param box: where it lies in each column of the order by itself.
    :param bounded: no row lies outside the bounds, in any column of the order.
    """

    location: str
    spec_id: int
    partition: str
    bytes: int
    data_bytes: int
    rows: int
    deleted: int = 0
    lower: Any = None
    upper: Any = None
    keyless: bool = False
    added_by: int = 0
    sequence: int = 0
    equality_deletes: int = 0
    box: Box = ()
    bounded: bool = False

    @property
    def delete_ratio(self) -> float:
        """Deleted rows per row, at most 1."""
        return min(self.deleted / self.rows, 1.0) if self.rows else 0.0

    @property
    def live_bytes(self) -> float:
        """Estimate of what its live rows take in another file."""
        return self.data_bytes * (1.0 - self.delete_ratio)

    @property
    def key_range(self) -> KeyRange:
        """Where the file lies in the measured order."""
        return KeyRange(self.lower, self.upper, self.rows)


Partitions = dict[tuple[int, str], list[FileFacts]]


def by_partition(files: Iterable[LiveFile], of_order: slice = slice(None)) -> Partitions:
    """Facts of the data files among a snapshot's live files, by partition spec and partition.

    :param files: all of them; the scope of a data file is its partition spec's id and its partition as text.
    :param of_order: which of the columns that have bounds make the order in which files lie.
    """
    known = list(files)
    deleted: dict[str, int] = defaultdict(int)
    by_scope: dict[Hashable, list[int]] = defaultdict(list)
    for file in known:
        if file.content is Content.EQUALITY_DELETES:
            by_scope[file.scope].append(file.sequence)
        elif file.content is not Content.DATA and file.location:
            deleted[file.location] += file.rows
    for numbers in by_scope.values():
        numbers.sort()
    found: Partitions = defaultdict(list)
    for file in known:
        if file.content is Content.DATA:
            assert file.location is not None
            equality = _above(by_scope.get(file.scope), file.sequence) + _above(by_scope.get(None), file.sequence)
            # so is the scope of every data file
            scope = cast("tuple[int, str]", file.scope)
            found[scope].append(_facts(file, scope, deleted[file.location], equality, of_order))
    return dict(found)


def _facts(file: LiveFile, scope: tuple[int, str], deleted: int, equality_deletes: int, of_order: slice) -> FileFacts:
    columns = file.bounds[of_order]
    lower, upper = lexicographic_ends(columns)
    return FileFacts(
        str(file.location),
        *scope,
        file.bytes,
        file.data_bytes or file.bytes,
        file.rows,
        deleted,
        lower,
        upper,
        bool(columns) and all(c.only_nulls for c in columns),
        file.added_by,
        file.sequence,
        equality_deletes,
        tuple(column_range(c, file.rows) for c in columns),
        bool(columns) and all(c.known and c.complete for c in columns),
    )


def _above(numbers: Sequence[int] | None, sequence: int) -> int:
    """How many of ascending sequence numbers are above one."""
    return len(numbers) - bisect.bisect_right(numbers, sequence) if numbers else 0
