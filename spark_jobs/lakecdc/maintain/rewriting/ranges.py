"""Decide which rows of the old files each task of a rewrite reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakecdc.maintain.selection import Unit
from lakecdc.metadata.file_facts import FileFacts

# bytes of a unit's files for each task that reads all of them; it sorts on Spark's disks beyond its memory
_READER_BYTES = 1024**3


@dataclass(frozen=True)
class Range:
    """Rows of a data file.

    :param unit: number of its unit.
    :param output: number of the new file that they go to, or of the first new file of their unit.
    :param last: row after the last one.
    :param from_file: first new file of the unit that the task writes.
    :param to_file: new file after the last one.
    :param counted: whether the task counts and hashes the rows for the proof, including rows of other new files.
    """

    unit: int
    output: int
    file: FileFacts
    first: int
    last: int
    from_file: int = 0
    to_file: int = 1
    counted: bool = True


def ranges_of(units: Sequence[Unit], *, in_order: bool) -> Iterator[Range]:
    """Yield the ranges of all files of units, in order.

    :param in_order: rows keep their order, and each new file of a unit gets a share; otherwise rows are sorted first.
    """
    output = 0
    for number, unit in enumerate(units):
        if in_order:
            yield from _shares(number, output, unit)
        else:
            yield from (Range(number, output, file, 0, file.rows) for file in unit.files)
        output += unit.outputs


def readers_of(unit: Unit, files: int, cores: int) -> int:
    """Return how many tasks write a unit's new files if each task reads all of its files: one, or more, for each core.

    :param cores: of the cluster, for this unit.
    """
    # a last round of fewer tasks would leave cores without work
    return min(files, cores * max(1, round(unit.bytes / (cores * _READER_BYTES))))


def shared(ranges: Iterable[Range], files: int, readers: int) -> Iterator[Range]:
    """Assign the ranges of a unit to several tasks, each for its share of the new files; one task counts each range."""
    for place, one in enumerate(ranges):
        for reader in range(readers):
            begin, end = files * reader // readers, files * (reader + 1) // readers
            counted = place % readers == reader
            yield replace(one, output=one.output + begin, from_file=begin, to_file=end, counted=counted)


def _shares(number: int, output: int, unit: Unit) -> Iterator[Range]:
    """Cut the rows of a unit's files, one after another, into parts of equal live bytes, one for each new file."""
    share, before = max(sum(file.live_bytes for file in unit.files) / unit.outputs, 1.0), 0.0
    for file in unit.files:
        begin = min(int(before / share), unit.outputs - 1)
        end = min(int((before + file.live_bytes) / share), unit.outputs - 1)
        cuts = [round(file.rows * (share * part - before) / file.live_bytes) for part in range(begin + 1, end + 1)]
        for part, (first, last) in enumerate(itertools.pairwise([0, *cuts, file.rows])):
            if first < last:
                yield Range(number, output + begin + part, file, first, last)
        before += file.live_bytes
