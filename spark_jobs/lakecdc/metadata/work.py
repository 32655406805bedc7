"""Work of a job on a table: benefit for readers and cost, estimated from metadata.

The cost is a first guess from measurements on one machine (docs/operations/benchmarks.md); measured runs correct it
(:mod:`lakecdc.metadata.calibration`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lakecdc.metadata.file_facts import FileFacts
from lakecdc.metadata.health import POSITION_COST, VECTOR_COST, TableHealth
from lakecdc.metadata.manifests import Manifest

# minimum CPU seconds of a job on one table
_START_DELETES, _START_EXPIRY, _START = 0.07, 0.25, 0.04
# a data file with deletes is searched, gets a new delete file, and is proven
_PER_TOUCHED_FILE, _PER_DELETE_FILE_READ = 0.0055, 0.00025
# of the data files that equality deletes apply to, and of the deletes
_PER_ROW, _PER_DELETE = 1.5e-7, 3e-6
_PER_FILE, _PER_COMPACTED_BYTE, _PER_SORTED_BYTE = 0.0014, 1.2e-7, 1.4e-7
_PER_MANIFEST, _PER_SNAPSHOT = 0.005, 0.012
# manifests are small and are only read to plan a scan
_OF_A_MANIFEST = 0.1


@dataclass(frozen=True)
class Work:
    """Work of a job on one table.

    :param benefit: number of files fewer that a read of the whole table, or of one key, opens afterwards; a delete file
        counts once per data file that it applies to, by its cost there.
    :param core_seconds: estimated CPU seconds of its tasks.
    :param bytes: of files to read and rewrite.
    """

    reason: str
    benefit: float
    core_seconds: float
    bytes: int


def of_delete_files(health: TableHealth, files: Iterable[FileFacts], format_version: int) -> Work:
    """Estimate rewriting delete files; of all ``files``, each with deletes keeps one delete file or vector."""
    touched = [file for file in files if file.equality_deletes or file.deleted]
    left = len(touched) * (VECTOR_COST if format_version >= 3 else POSITION_COST)
    count = health.equality_delete_files + health.position_delete_files + health.deletion_vectors
    # an existing vector is left unchanged unless equality deletes apply too
    searched = [file for file in touched if file.equality_deletes]
    of_files = _PER_TOUCHED_FILE * len(searched or touched) + _PER_DELETE_FILE_READ * health.delete_file_reads
    of_rows = _PER_ROW * sum(file.rows for file in searched) + _PER_DELETE * health.equality_deletes
    return Work(
        f"{health.equality_delete_files} equality-delete files and {count - health.equality_delete_files} others, "
        f"applied {health.delete_file_reads} times by a scan",
        round(max(0.0, health.delete_read_cost - left), 2),
        _rounded(_START_DELETES + of_files + of_rows),
        health.delete_bytes,
    )


def of_compaction(chosen: Sequence[FileFacts], target_file_bytes: int) -> Work:
    """Estimate merging data files into as many as they need."""
    size = sum(file.bytes for file in chosen)
    needed = max(1, math.ceil(sum(file.live_bytes for file in chosen) / target_file_bytes))
    spared = len(chosen) - needed + sum(1 for file in chosen if file.deleted)
    return Work(
        f"{len(chosen)} files of {size} bytes would be about {needed}",
        float(max(0, spared)),
        _rounded(_START + _PER_FILE * len(chosen) + _PER_COMPACTED_BYTE * size),
        size,
    )


def of_sorting(partitions: Collection[tuple[float, Sequence[FileFacts]]], depth: float) -> Work:
    """Estimate sorting the files of partitions, each with its overlap depth, until a key is in one of them."""
    size = sum(file.bytes for _, files in partitions for file in files)
    count = sum(len(files) for _, files in partitions)
    deepest = max(each for each, _ in partitions)
    return Work(
        f"{count} files in {len(partitions)} partitions overlap, up to {deepest:.1f} at one key",
        round(max(0.0, depth - 1), 2),
        _rounded(_START + _PER_FILE * count + _PER_SORTED_BYTE * size),
        size,
    )


def of_manifests(current: Sequence[Manifest], planned: int) -> Work:
    """Estimate rewriting manifests to a planned number."""
    return Work(
        f"{len(current)} manifests would be {planned}",
        round(_OF_A_MANIFEST * (len(current) - planned), 2),
        _rounded(_START + _PER_MANIFEST * len(current)),
        sum(manifest.bytes for manifest in current),
    )


def of_expiry(snapshots: int) -> Work:
    """Estimate expiring snapshots that are old enough: readers gain nothing, storage does."""
    return Work(f"{snapshots} snapshots are old enough", 0.0, _rounded(_START_EXPIRY + _PER_SNAPSHOT * snapshots), 0)


def of_tags(refs: int) -> Work:
    """Estimate creating and dropping tags of days and months."""
    return Work(f"{refs} tags of past days and months to create or drop", 0.0, _START, 0)


def _rounded(core_seconds: float) -> float:
    return round(core_seconds, 3)
