"""Sets that store only eight-byte hashes, for tables with many million files."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable

from lakecdc.maintain.orphans.locations import key

_BUCKETS = 256


class HashSet:
    """A set of hashes."""

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self._sorted = [array("Q") for _ in range(_BUCKETS)]
        self._new = [array("Q") for _ in range(_BUCKETS)]
        self.update(hashes)

    def update(self, hashes: Iterable[int]) -> None:
        """Add hashes, which threads may compute concurrently."""
        for value in hashes:
            bucket = self._new[value >> 56]
            bucket.append(value)
            # the same file is in many manifests
            if len(bucket) > 4096 + len(self._sorted[value >> 56]):
                self._sort(value >> 56)

    def has(self, value: int) -> bool:
        """Check whether the set has a hash."""
        number = value >> 56
        if self._new[number]:
            self._sort(number)
        bucket = self._sorted[number]
        at = bisect_left(bucket, value)
        return at < len(bucket) and bucket[at] == value

    def __len__(self) -> int:
        for number, new in enumerate(self._new):
            if new:
                self._sort(number)
        return sum(map(len, self._sorted))

    def _sort(self, number: int) -> None:
        self._sorted[number] = array("Q", sorted({*self._sorted[number], *self._new[number]}))
        self._new[number] = array("Q")


class NameSet(HashSet):
    """Locations, normalized across spellings.

    A hash collision, one in four billion billions, makes an orphan look live, never the reverse.
    """

    def __contains__(self, location: str) -> bool:
        return self.has(name_hash(location))


class LineSet(HashSet):
    """Lines of a list."""

    def __contains__(self, line: bytes) -> bool:
        return self.has(line_hash(line))


def line_hash(line: bytes) -> int:
    """Return the hash of a line."""
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")


def name_hash(location: str) -> int:
    """Return the hash of a location."""
    return line_hash(key(location).encode("utf-8", "surrogatepass"))
