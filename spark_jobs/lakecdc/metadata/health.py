"""Health of a table, measured from its metadata alone: the cost of its file layout for readers.

One definition for workers (pyiceberg), jobs (Spark) and displays.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from lakecdc.metadata.file_facts import Content, LiveFile

#: number of live files above which only jobs measure a table, whose tasks read its manifests in parallel
MOST_FILES_OF_A_WORKER = 100_000
#: size classes of data files, by the share of the target size at which each ends
_CLASSES = (("tiny", 0.125), ("small", 0.75), ("fit", 1.8), ("large", math.inf))
# Cost of one delete file in a scan of one data file, relative to an equality delete: its keys are compared with every
# row, while positions are only merged, and a vector is a bit look-up.
EQUALITY_COST, POSITION_COST, VECTOR_COST = 1.0, 0.2, 0.05
_MANIFEST_BYTES = 8 * 1024**2
_POOR, _BAD = 80, 50
#: the job that restores lost points, by reason
REGAINED_BY = {
    "deletes": "rewrite_delete_files",
    "small_files": "compact_data_files",
    "overlap": "sort_data_files",
    "manifests": "rewrite_manifests",
}
# a loss of fewer points is not shown
_WORTH = 0.5


@dataclass(frozen=True)
class TableHealth:
    """Layout of a table as its readers see it.

    :param files_by_size: data files of each size class: ``tiny`` below an eighth of the target, ``small`` below three
        quarters, ``fit`` below 1.8, and ``large``.
    :param files_needed: number of data files of the target size for the same data, counted by partition.
    :param rows: in data files, including deleted ones.
    :param delete_file_reads: number of delete files that a full scan applies, each counted once per data file that it
        applies to.
    :param delete_read_cost: the same, with position deletes counted a fifth and deletion vectors a twentieth.
    :param overlap_depth: number of files that may contain one key, on average over the partitions; None without an
        order.
    """

    target_file_bytes: int
    data_files: int
    data_bytes: int
    files_by_size: Mapping[str, int]
    files_needed: int
    rows: int
    delete_bytes: int
    equality_delete_files: int
    equality_deletes: int
    position_delete_files: int
    deletion_vectors: int
    position_deletes: int
    delete_file_reads: int
    delete_read_cost: float
    snapshots: int
    manifests: int
    manifest_bytes: int
    overlap_depth: float | None = None

    @property
    def score(self) -> float:
        """Return the score from 100, nothing to gain, down to 0."""
        return round(100 - sum(self.lost.values()), 1)

    @property
    def lost(self) -> dict[str, float]:
        """Return the points that the score lacks, by reason.

        - ``deletes``, up to 45: half of it at four equality deletes per data file (reading one data file with ten
          delete files takes some six times as long as without any, apache/iceberg-go #852).
        - ``small_files``, up to 30: the share of superfluous data files; counts in full from a dozen of them.
        - ``overlap``, up to 12: half of it where a key may be in five files.
        - ``manifests``, up to 8: half of it at a hundred manifests more than their bytes need.
        - ``snapshots``, up to 5: half of it at a thousand.
        """
        spare_files = max(0, self.data_files - self.files_needed)
        spare_manifests = max(0, self.manifests - math.ceil(self.manifest_bytes / _MANIFEST_BYTES))
        points_by_reason = {
            "deletes": 45 * _saturated(self.delete_read_cost / max(self.data_files, 1), 4),
            "small_files": 30 * spare_files / max(self.data_files, 1) * min(1.0, spare_files / 12),
            "overlap": 12 * _saturated(max(0.0, (self.overlap_depth or 1.0) - 1), 4),
            "manifests": 8 * _saturated(spare_manifests, 100),
            "snapshots": 5 * _saturated(max(0, self.snapshots - 1), 1000),
        }
        return {name: round(points, 1) for name, points in points_by_reason.items()}

    def facts(self) -> dict[str, object]:
        """Return the health as JSON, score and lost points first."""
        return {"score": self.score, "lost": self.lost, **asdict(self)}


def worst_losses(lost: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the losses worth showing, most points first."""
    return sorted(((what, points) for what, points in lost.items() if points >= _WORTH), key=lambda each: -each[1])


def grade(score: float) -> str:
    """Grade a score: ``good``, ``poor`` below 80, ``bad`` below 50."""
    return "bad" if score < _BAD else "poor" if score < _POOR else "good"


def measure_health(
    files: Iterable[LiveFile],
    *,
    target_file_bytes: int,
    snapshots: int,
    manifests: Sequence[int],
    overlap_depth: float | None = None,
) -> TableHealth:
    """Measure a snapshot from its live files.

    :param manifests: bytes of each of the snapshot's manifests.
    """
    known = list(files)
    kinds = {kind: [file for file in known if file.content is kind] for kind in Content}
    data = kinds[Content.DATA]
    reads = _delete_file_reads(kinds)
    cost = (
        reads[Content.EQUALITY_DELETES] * EQUALITY_COST
        + reads[Content.POSITION_DELETES] * POSITION_COST
        + reads[Content.DELETION_VECTOR] * VECTOR_COST
    )
    return TableHealth(
        target_file_bytes=target_file_bytes,
        data_files=len(data),
        data_bytes=sum(file.bytes for file in data),
        files_by_size=_by_size(data, target_file_bytes),
        files_needed=_files_needed(data, target_file_bytes),
        rows=sum(file.rows for file in data),
        delete_bytes=_delete_bytes(kinds),
        equality_delete_files=len(kinds[Content.EQUALITY_DELETES]),
        equality_deletes=sum(file.rows for file in kinds[Content.EQUALITY_DELETES]),
        position_delete_files=len(kinds[Content.POSITION_DELETES]),
        deletion_vectors=len(kinds[Content.DELETION_VECTOR]),
        position_deletes=sum(
            file.rows for kind in (Content.POSITION_DELETES, Content.DELETION_VECTOR) for file in kinds[kind]
        ),
        delete_file_reads=sum(reads.values()),
        delete_read_cost=round(cost, 2),
        snapshots=snapshots,
        manifests=len(manifests),
        manifest_bytes=sum(manifests),
        overlap_depth=overlap_depth,
    )


def _delete_bytes(kinds: Mapping[Content, Sequence[LiveFile]]) -> int:
    """Sum the bytes of all delete files, counting files with several deletion vectors once."""
    files = [file for kind, of_kind in kinds.items() if kind is not Content.DATA for file in of_kind]
    puffins = {file.puffin: file.bytes for file in files if file.puffin is not None}
    return sum(file.bytes for file in files if file.puffin is None) + sum(puffins.values())


def _saturated(amount: float, half: float) -> float:
    """Scale an amount to a value from 0 towards 1, reaching a half at ``half``."""
    return amount / (amount + half)


def _by_size(data: Sequence[LiveFile], target: int) -> dict[str, int]:
    counts = dict.fromkeys((name for name, _ in _CLASSES), 0)
    for file in data:
        counts[next(name for name, end in _CLASSES if file.bytes < end * target)] += 1
    return counts


def _files_needed(data: Sequence[LiveFile], target: int) -> int:
    sizes: dict[Hashable, int] = defaultdict(int)
    for file in data:
        sizes[file.scope] += file.bytes
    return sum(max(1, round(size / target)) for size in sizes.values())


def _delete_file_reads(kinds: Mapping[Content, Sequence[LiveFile]]) -> dict[Content, int]:
    """Count the pairs of a delete file and a data file that it applies to, by kind.

    Equality deletes apply to data files with lower sequence numbers, position deletes also to those with the same, and
    those that name their data file only to it (Iceberg specification, scan planning).
    """
    by_scope: dict[Hashable, list[int]] = defaultdict(list)
    everywhere: list[int] = []
    for file in kinds[Content.DATA]:
        by_scope[file.scope].append(file.sequence)
        everywhere.append(file.sequence)
    for numbers in (everywhere, *by_scope.values()):
        numbers.sort()
    live = {file.location for file in kinds[Content.DATA]}
    reads: dict[Content, int] = {kind: 0 for kind in Content if kind is not Content.DATA}
    for kind in reads:
        for file in kinds[kind]:
            if file.location is not None:
                reads[kind] += file.location in live
            elif kind is Content.DELETION_VECTOR:
                reads[kind] += 1
            else:
                numbers = everywhere if file.scope is None else by_scope.get(file.scope, [])
                count = bisect.bisect_left if kind is Content.EQUALITY_DELETES else bisect.bisect_right
                reads[kind] += count(numbers, file.sequence)
    return reads
