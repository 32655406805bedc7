"""Cold data files, which compaction and sorting leave alone: of old partitions, of a tag, or of a storage class."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from lakecdc.contract.rewriting import RewriteDataFilesOptions
from lakecdc.metadata.file_facts import Cold, FileFacts, Partitions, cold_files

T = TypeVar("T")
Scope = tuple[int, str]
#: maximum number of files whose storage class a run looks up, with a request each
MOST_LOOK_UPS = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_TEXT = {
    Cold.AGE: "by their partition's age",
    Cold.TAG: "by their tag",
    Cold.STORAGE_CLASS: "by their storage class",
    Cold.NOT_LOOKED_UP: f"beyond the {MOST_LOOK_UPS} whose storage class a run looks up",
}


@dataclass(frozen=True)
class TimeField:
    """A field of a partition spec that may bound the times of a partition's rows.

    :param key: of its value in the partition's text.
    :param kind: Iceberg's name of the type of its source column.
    """

    key: str
    transform: str
    kind: str

    @property
    def bounds_time(self) -> bool:
        """Check whether its values are ranges of time."""
        return self.transform in ("year", "month", "day", "hour") or (
            self.transform == "identity" and self.kind in _TIMES
        )

    def end(self, value: Any) -> datetime | None:
        """Return the time after which a partition has no rows; None if its value does not bound it.

        :param value: as Iceberg stores it, or dates and times as ISO-8601.
        """
        try:
            return self._end(value)
        except (OverflowError, TypeError, ValueError):
            # null, and times that Python does not have
            return None

    def _end(self, value: Any) -> datetime:
        if self.transform in ("year", "month"):
            months = (value + 1) * 12 if self.transform == "year" else value + 1
            return datetime(1970 + months // 12, months % 12 + 1, 1, tzinfo=UTC)
        if self.transform == "hour":
            return _EPOCH + timedelta(hours=value + 1)
        if self.transform == "day" or self.kind == "date":
            days = (date.fromisoformat(value) - _EPOCH.date()).days if isinstance(value, str) else value
            return _EPOCH + timedelta(days=days + 1)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _EPOCH + timedelta(microseconds=value // 1000 if self.kind.endswith("_ns") else value)


def partition_end(fields: Mapping[int, Sequence[TimeField]], scope: Scope) -> datetime | None:
    """Return the time after which a partition has no rows; None if unknown, or if it has no bounded time.

    :param fields: by partition spec.
    :param scope: partition spec, and values as JSON.
    """
    values = json.loads(scope[1])
    ends = [each.end(values.get(each.key)) for each in fields.get(scope[0], ()) if each.bounds_time]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


@dataclass(frozen=True)
class ColdRules:
    """Rules by a job's options which data files of a table are cold.

    :param end: see :func:`partition_end`.
    :param tagged: locations of the data files that the tag reaches.
    :param storage_classes: looks up storage classes by location; locations that have none are left out.
    """

    options: RewriteDataFilesOptions
    end: Callable[[Scope], datetime | None]
    tagged: Collection[str]
    storage_classes: Callable[[Collection[str]], Mapping[str, str]]
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _looked_up: dict[str, Cold | None] = field(default_factory=dict)

    def mark(self, partitions: Partitions) -> Partitions:
        """Mark the cold files among data files, as far as known."""
        if not (self.options.cold_after_days or self.tagged or self._looked_up):
            return partitions
        return {
            scope: [replace(file, cold=why) if (why := self._why(file, is_old)) else file for file in files]
            for scope, files in partitions.items()
            for is_old in [self._is_old(scope)]
        }

    def choose(
        self, partitions: Partitions, choose: Callable[[Partitions], T], files_of: Callable[[T], Iterable[FileFacts]]
    ) -> T:
        """Choose among data files, until the storage class of each chosen one is known.

        :param choose: gets the files, the cold ones marked.
        :param files_of: returns the files of a choice.
        """
        while True:
            choice = choose(self.mark(partitions))
            unknown = [file for file in files_of(choice) if file.location not in self._looked_up]
            if not unknown or not self.options.cold_storage_classes:
                return choice
            self._look_up(unknown)

    def _is_old(self, scope: Scope) -> bool:
        days = self.options.cold_after_days
        end = self.end(scope) if days else None
        return end is not None and end < self.now - timedelta(days=days)

    def _why(self, file: FileFacts, is_old: bool) -> Cold | None:
        if is_old:
            return Cold.AGE
        return Cold.TAG if file.location in self.tagged else self._looked_up.get(file.location)

    def _look_up(self, files: Sequence[FileFacts]) -> None:
        """Look up storage classes, of the newest files first, as the oldest may be too many and cold forever."""
        looked_up = sum(why is not Cold.NOT_LOOKED_UP for why in self._looked_up.values())
        locations = [f.location for f in sorted(files, key=lambda f: (-f.sequence, f.location))]
        most = MOST_LOOK_UPS - looked_up
        classes = self.storage_classes(locations[:most])
        for number, location in enumerate(locations):
            is_cold = classes.get(location) in self.options.cold_storage_classes
            known = Cold.STORAGE_CLASS if is_cold else None
            self._looked_up[location] = known if number < most else Cold.NOT_LOOKED_UP


def cold_counts(partitions: Partitions) -> dict[str, int]:
    """Count the marked files for the report, also by reason; empty if there are none."""
    cold = [file for files in partitions.values() for file in cold_files(files)]
    if not cold:
        return {}
    by_reason = {f"cold_files_by_{why}": sum(file.cold is why for file in cold) for why in Cold}
    totals = {"cold_files_left": len(cold), "cold_bytes_left": sum(file.bytes for file in cold)}
    return totals | {name: count for name, count in by_reason.items() if count}


def cold_remark(counts: Mapping[str, Any]) -> str | None:
    """Describe the cold files of :func:`cold_counts`, or return None if there are none."""
    if "cold_files_left" not in counts:
        return None
    why = ", ".join(f"{count} {_TEXT[each]}" for each in Cold if (count := counts.get(f"cold_files_by_{each}")))
    return f"{counts['cold_files_left']} cold files of {counts['cold_bytes_left']} bytes are left alone: {why}"
