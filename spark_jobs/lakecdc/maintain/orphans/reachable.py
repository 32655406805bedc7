"""Collect the files that a table needs: files of all snapshots, statistics and metadata files."""

from __future__ import annotations

import hashlib
import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.iceberg.reachability import ManifestReader, MissingManifestError, newest_metadata
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.locations import key, readings

log = logging.getLogger(__name__)
_ATTEMPTS = 5
# Iceberg refuses metadata whose branches and tags name missing snapshots
_NO_REFS: dict[str, Any] = {"refs": {}, "current-snapshot-id": -1}
# partitioned by the first byte
_BUCKETS = 256


class HashSet:
    """A set of eight-byte hashes, for tables with many million files.

    A false positive needs a collision: one in four billion billions.
    """

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

    def __contains__(self, value: int) -> bool:
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


def line_hash(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")


def name_hash(location: str) -> int:
    return line_hash(key(location).encode("utf-8", "surrogatepass"))


class Reachable:
    """Locations that must stay. The set only grows: a run never touches a file that the table needed during it."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._names = HashSet()
        self._reader = ManifestReader(table, _hashes)
        self._metadata: dict[str, Any] | None = None

    def __contains__(self, location: str) -> bool:
        return name_hash(location) in self._names

    def refresh(self) -> dict[str, Any]:
        """Read the newest metadata (Iceberg's JSON), and add its new files.

        :raises ConflictError: the table was dropped or replaced.
        :raises InputError: the table references missing metadata.
        """
        metadata = newest_metadata(self._table, self._metadata)
        for _ in range(_ATTEMPTS):
            if metadata is self._metadata:
                return metadata
            try:
                self._add(metadata)
                self._metadata = metadata
            except MissingManifestError as error:
                # snapshots may expire during this job
                before, metadata = metadata, newest_metadata(self._table)
                if _snapshot_ids(before) == _snapshot_ids(metadata):
                    raise InputError(
                        f"Its metadata references a missing file: {error}",
                        table=self._table.name,
                        hint="Repair the table first; without that file its needed files are not known.",
                    ) from error
        raise ConflictError(
            "Its snapshots expire faster than they can be read.",
            table=self._table.name,
            hint="Nothing more was changed; run again.",
        )

    def protect(self, metadata: Mapping[str, Any]) -> None:
        """Protect the existing files that a metadata file outside the table's history references."""
        self._names.update(_hashes(_beside_snapshots(metadata, self._table.location)))
        for snapshot in metadata.get("snapshots", []):
            try:
                self._add(dict(metadata) | {"snapshots": [snapshot], **_NO_REFS})
            except MissingManifestError:
                log.info("%s: snapshot %s has expired", self._table.name, snapshot["snapshot-id"])

    def _add(self, metadata: Mapping[str, Any]) -> None:
        self._names.update(_hashes(_beside_snapshots(metadata, self._table.location)))
        for hashes in self._reader.new_files(metadata):
            self._names.update(hashes)


def _beside_snapshots(metadata: Mapping[str, Any], root: str) -> Iterator[str]:
    for kind in ("statistics", "partition-statistics"):
        yield from (at for each in metadata.get(kind, []) for at in readings(each["statistics-path"], root))
    yield from (at for each in metadata.get("metadata-log", []) for at in readings(each["metadata-file"], root))


def _snapshot_ids(metadata: Mapping[str, Any]) -> set[int]:
    return {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", [])}


def _hashes(locations: Iterable[str]) -> array[int]:
    return array("Q", map(name_hash, locations))
