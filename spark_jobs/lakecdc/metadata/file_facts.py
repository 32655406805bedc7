"""Live files of a snapshot as manifests list them, and facts about its data files: deleted rows, place in the order."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.metadata.overlap import Box, ColumnBounds, KeyRange, column_range, lexicographic_ends, overlap_depth

#: reason in the report for a table without a sort order
UNSORTED = (
    "the table has neither a sort order nor identifier fields; "
    "set options.columns, or set an order with ALTER TABLE … WRITE ORDERED BY"
)


class Cold(StrEnum):
    """Reasons to leave a data file alone as cold."""

    AGE = "age"
    TAG = "tag"
    STORAGE_CLASS = "storage_class"
    NOT_LOOKED_UP = "unknown_storage_class"


@dataclass(frozen=True)
class FileFacts:
    """One live data file.

    :param partition: its partition tuple as text; with the spec id it identifies its partition.
    :param data_bytes: size of its columns, without footer and indexes.
    :param rows: rows in it, including deleted ones.
    :param deleted: rows deleted by position deletes and deletion vectors of this file.
    :param lower: its lowest key in the measured order, None if unknown.
    :param keyless: the columns of the order are null in every row.
    :param sequence: data sequence number.
    :param equality_deletes: number of equality-delete files that apply to it, by partition and sequence number alone.
    :param box: its range in each column of the order.
    :param bounded: no row lies outside the bounds, in any column of the order.
    :param cold: why it is left alone (:mod:`lakecdc.metadata.cold`); None if it may be rewritten.
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
    cold: Cold | None = None

    @property
    def delete_ratio(self) -> float:
        """Return the share of deleted rows, at most 1."""
        return min(self.deleted / self.rows, 1.0) if self.rows else 0.0

    @property
    def live_bytes(self) -> float:
        """Estimate the size of its live rows in another file."""
        return self.data_bytes * (1.0 - self.delete_ratio)

    @property
    def key_range(self) -> KeyRange:
        """Return its range in the measured order."""
        return KeyRange(self.lower, self.upper, self.rows)


Partitions = dict[tuple[int, str], list[FileFacts]]


def warm_files(files: Iterable[FileFacts]) -> list[FileFacts]:
    """Return the data files that may be rewritten."""
    return [file for file in files if file.cold is None]


def cold_files(files: Iterable[FileFacts]) -> list[FileFacts]:
    """Return the data files that are left alone as cold."""
    return [file for file in files if file.cold is not None]


def by_partition(files: Iterable[LiveFile], of_order: slice = slice(None)) -> Partitions:
    """Return facts of the data files among a snapshot's live files, by partition spec and partition.

    :param files: all of them; the scope of a data file is its partition spec's id and its partition as text.
    :param of_order: slice of the columns with bounds that are the sort order.
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
    partitions: Partitions = defaultdict(list)
    for file in known:
        if file.content is Content.DATA:
            assert file.location is not None
            equality = _above(by_scope.get(file.scope), file.sequence) + _above(by_scope.get(None), file.sequence)
            # data files always have such a scope
            scope = cast("tuple[int, str]", file.scope)
            partitions[scope].append(_facts(file, scope, deleted[file.location], equality, of_order))
    return dict(partitions)


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
    return len(numbers) - bisect.bisect_right(numbers, sequence) if numbers else 0


def in_order(options: SortDataFilesOptions) -> str:
    """Explain in the report why a table whose files are in order is not sorted."""
    return f"no partition's files overlap deeper than {options.min_overlap_depth:g}"


def linear_depth(files: Sequence[FileFacts]) -> float:
    """Return the overlap depth of a partition's files in a linear order; files without keys do not count."""
    return overlap_depth([file.key_range for file in files if not file.keyless])


def keyed_rows(files: Sequence[FileFacts]) -> int:
    """Count the rows of a partition's files with keys in the order."""
    return sum(file.rows for file in files if not file.keyless)


def average_depth(depths: Sequence[tuple[float, int]]) -> float:
    """Average the overlap depth of partitions, weighted by rows."""
    rows = sum(weight for _, weight in depths)
    return round(sum(depth * weight for depth, weight in depths) / rows, 2) if rows else 1.0


class Content(StrEnum):
    """Kinds of live files."""

    DATA = "data files"
    EQUALITY_DELETES = "equality deletes"
    POSITION_DELETES = "position deletes"
    DELETION_VECTOR = "deletion vectors"


@dataclass(frozen=True)
class LiveFile:
    """One live file of a snapshot as its manifest lists it.

    :param scope: partition spec and values; None for equality deletes that apply everywhere.
    :param bytes: its size; for a deletion vector that of its Puffin file.
    :param sequence: data sequence number.
    :param location: for a data file its own; for position deletes that of the one data file they refer to, if known;
        deletion vectors always refer to one.
    :param puffin: location of a deletion vector's Puffin file, which may contain those of other data files.
    :param data_bytes: size of a data file's columns, without footer and indexes; 0 if unknown.
    :param bounds: of a data file's requested columns.
    """

    content: Content
    scope: Hashable
    bytes: int
    rows: int
    sequence: int
    location: str | None = None
    puffin: str | None = None
    data_bytes: int = 0
    added_by: int = 0
    bounds: tuple[ColumnBounds, ...] = ()
