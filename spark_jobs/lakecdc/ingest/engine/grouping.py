"""Which keys one task folds and writes: those of some partitions of the target, or of one share of the hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pyarrow as pa

from lakecdc.ingest.engine.layout import Numbers
from lakecdc.writer.partitions import Partitioning, columns_of, count_of, find_partitioning, with_partitions

_MOST_TASKS = 256
# shares that a partition is cut into where only values tell how many partitions there are: each makes a file, and one
# partition may have all the rows
_SHARES = 4


@dataclass(frozen=True)
class Grouping:
    """How keys are divided into groups.

    :param partitioning: the target's; None if it is not known, or tasks cannot evaluate it.
    :param spread: shares that a partition is cut into.
    """

    tasks: int
    partitioning: Partitioning | None = None
    spread: int = 1

    def with_partitions(self, table: pa.Table) -> pa.Table:
        """Return a table of the engine's layout with the partition values ``p0`` … of its keys."""
        return with_partitions(table, self.partitioning or ())

    def groups(self, table: pa.Table) -> Numbers:
        """Return the group of each row of a table with ``p0`` … and ``hash``."""
        hashes = table["hash"].to_numpy()
        if not self.partitioning:
            return hashes % self.tasks
        found = np.zeros(table.num_rows, np.int64)
        for name, one in zip(columns_of(self.partitioning), self.partitioning, strict=True):
            numbers = _numbers(table[name].combine_chunks())
            # a bucket has a number below their count, so that groups are even; other values any below 2 to the 31st
            found = (found * (one.transform.width if one.transform.kind == "bucket" else 31) + numbers) % (1 << 31)
        return (found * self.spread + hashes % self.spread) % self.tasks


def grouping(expressions: Sequence[str], key: Sequence[str], types: Sequence[str], tasks: int) -> Grouping:
    """Return how the keys of a target are grouped.

    :param expressions: the target's partition transforms in SQL.
    :param tasks: number of groups to aim at.
    """
    sources = {name: f"k{place}" for place, name in enumerate(key)}
    found = find_partitioning(expressions, dict(zip(key, types, strict=True)), sources)
    if not found:
        return Grouping(tasks, found)
    partitions = count_of(found)
    if partitions is None:
        return Grouping(tasks, found, min(tasks, _SHARES))
    spread = max(1, -(-tasks // partitions))
    return Grouping(min(_MOST_TASKS, partitions * spread), found, spread)


def _numbers(values: pa.Array) -> Numbers:
    """Return a number from 0, below 2 to the 31st, for each partition value: the same in each process."""
    if pa.types.is_int32(values.type):
        found: Numbers = values.to_numpy().astype(np.int64)
        return found % (1 << 31)
    encoded = values.dictionary_encode()
    of_each = [crc32(str(value).encode()) >> 1 for value in encoded.dictionary.to_pylist()]
    return np.array(of_each, np.int64)[encoded.indices.to_numpy()]
