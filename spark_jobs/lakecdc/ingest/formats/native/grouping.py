"""Which keys one task folds and writes: those of one partition of the target, or of one share of the hashes."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import pyarrow as pa

_BUCKET = re.compile(r"bucket\(\s*(\d+)\s*,\s*`?(\w+)`?\s*\)", re.IGNORECASE)
# types whose bucket is that of their number (table specification, appendix B)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz")
# and those whose bucket is that of their bytes
_TEXTS = ("string", "binary")
_MOST_TASKS = 256


@dataclass(frozen=True)
class Bucket:
    """A partition field ``bucket(count, column)``.

    :param key: place of the column in the key.
    """

    key: int
    count: int


@dataclass(frozen=True)
class Grouping:
    """How keys are told apart.

    :param tasks: number of groups.
    :param buckets: the target's partition fields; None if they are not known or no plain buckets.
    :param spread: shares that a partition is cut into.
    """

    tasks: int
    buckets: tuple[Bucket, ...] | None = None
    spread: int = 1

    def with_partitions(self, table: pa.Table) -> pa.Table:
        """A table of the engine's layout with the partition values ``p0`` … of its keys."""
        for place, bucket in enumerate(self.buckets or ()):
            values = bucket_values(table[f"k{bucket.key}"].combine_chunks(), bucket.count)
            table = table.append_column(f"p{place}", values)
        return table

    def groups(self, table: pa.Table) -> np.ndarray[Any, Any]:
        """The group of each row.

        :param table: with ``p0`` … and ``hash``.
        """
        hashes = table["hash"].to_numpy()
        if not self.buckets:
            return hashes % self.tasks
        found = 0
        for place, bucket in enumerate(self.buckets):
            found = found * bucket.count + table[f"p{place}"].to_numpy().astype("int64")
        return (found * self.spread + hashes % self.spread) % self.tasks


def grouping(expressions: Sequence[str], key: Sequence[str], types: Sequence[str], tasks: int) -> Grouping:
    """How the keys of a target are grouped.

    :param expressions: the target's partition transforms in SQL.
    :param types: Spark SQL types of the key columns.
    :param tasks: groups that are wanted.
    """
    buckets = []
    hashes_text = importlib.util.find_spec("mmh3") is not None
    for expression in expressions:
        # a function of a catalog is named with it
        found = _BUCKET.fullmatch(expression.rpartition(".system.")[2].strip())
        if not found or found[2] not in key or types[key.index(found[2])] not in (*_NUMBERS, *_TEXTS * hashes_text):
            return Grouping(tasks)
        buckets.append(Bucket(key.index(found[2]), int(found[1])))
    partitions = 1
    for bucket in buckets:
        partitions *= bucket.count
    spread = max(1, -(-tasks // partitions)) if buckets else 1
    return Grouping(min(_MOST_TASKS, partitions * spread) if buckets else tasks, tuple(buckets), spread)


def bucket_values(keys: pa.Array, count: int) -> pa.Array:
    """Iceberg's ``bucket`` of some values that are not null.

    :param keys: text, bytes, integers, dates or times in microseconds.
    """
    import pyarrow as pa

    texts = pa.types.is_string(keys.type) or pa.types.is_binary(keys.type)
    hashes = _text_hashes(keys) if texts else _number_hashes(keys)
    return pa.array(((hashes & 0x7FFFFFFF) % count).astype("int32"))


def _text_hashes(keys: pa.Array) -> np.ndarray[Any, Any]:
    import mmh3
    import numpy as np

    return np.fromiter((mmh3.hash(text, 0, False) for text in keys.to_pylist()), np.int64, len(keys))


def _number_hashes(keys: pa.Array) -> np.ndarray[Any, Any]:
    """Murmur3 (x86, 32 bits, seed 0) of each number's eight bytes, little endian."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_date32(keys.type):
        keys = keys.cast(pa.int32())
    words = np.ascontiguousarray(keys.cast(pa.int64()).to_numpy(zero_copy_only=False), "<i8").view("<u4").reshape(-1, 2)
    found = np.zeros(len(keys), np.uint32)
    for word in (words[:, 0], words[:, 1]):
        mixed = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        found = _rotated(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = (found ^ (found >> np.uint32(shift))) * np.uint32(factor)
    return (found ^ (found >> np.uint32(16))).astype(np.int64)


def _rotated(words: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    import numpy as np

    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
