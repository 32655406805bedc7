"""Counts of a table from the totals of the head's snapshot summary: one metadata file, no manifest is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

#: files below this share of the target size count as small
SMALL_FILE_RATIO = 0.75


@dataclass(frozen=True)
class Totals:
    """Totals of a snapshot.

    :param equality_deletes: rows in equality-delete files.
    :param position_deletes: rows in position-delete files and deletion vectors.
    :param records: rows in data files, including deleted ones.
    """

    data_files: int
    delete_files: int
    equality_deletes: int
    position_deletes: int
    records: int
    bytes: int

    def numbers(self) -> dict[str, int]:
        """Return the counts for reports."""
        counts = asdict(self)
        counts["rows"] = counts.pop("records")
        return counts


def from_summary(summary: Mapping[str, str]) -> Totals:
    """Read the totals of a snapshot summary, 0 where missing (Iceberg specification, appendix F, optional fields)."""
    names = ("data-files", "delete-files", "equality-deletes", "position-deletes", "records", "files-size")
    return Totals(*(_number(summary, f"total-{name}") for name in names))


def equality_delete_files(summaries: Iterable[Mapping[str, str]]) -> int:
    """Count live equality-delete files from a branch's snapshot summaries, from its head towards the root.

    Summaries have no total of them, so added and removed ones are counted back to a snapshot without equality deletes.
    If expiry has removed part of the way, all live delete files count.
    """
    known = list(summaries)
    counted = counted_back(known)
    return from_summary(known[0]).delete_files if counted is None else counted


def counted_back(summaries: Sequence[Mapping[str, str]]) -> int | None:
    """Count live equality-delete files; return None if the remaining summaries are not enough."""
    count = 0
    for summary in summaries:
        if not _number(summary, "total-equality-deletes"):
            return count
        count += _number(summary, "added-equality-delete-files")
        if _number(summary, "total-delete-files") == _number(summary, "added-delete-files"):
            # no older delete files are live
            return count
        count -= _number(summary, "removed-equality-delete-files")
    return None if summaries else 0


def _number(summary: Mapping[str, str], name: str) -> int:
    return int(summary.get(name) or 0)
