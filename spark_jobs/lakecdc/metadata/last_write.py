"""Last write of a table and rows after its earlier runs, from snapshot summaries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from lakecdc.metadata import names
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.policy import KEEPING
from lakecdc.metadata.positions import current_position, nearest_carrier
from lakecdc.metadata.totals import from_summary

#: jobs that add rows; our other jobs change no rows, except that some remove old ones
_WRITING = ("ingest", "export_changes", "scd2")
_KEEPING = {*KEEPING, "rebucket"}
# summary entry of Iceberg: the application that created the snapshot
_APPLICATION = "app-id"


@dataclass(frozen=True)
class SnapshotFacts:
    """Facts of a snapshot, with its commit time in milliseconds since 1970."""

    id: int
    timestamp_ms: int
    operation: str | None
    summary: Mapping[str, str]

    @property
    def is_maintenance(self) -> bool:
        """Check whether it has the same rows as its parent, possibly without old ones."""
        job = self.summary.get(names.JOB)
        return self.operation == "replace" or (job is not None and job not in _WRITING)

    @property
    def keeps_rows(self) -> bool:
        """Check whether it has exactly the same rows as its parent, including old ones that our jobs may remove."""
        return keeps_rows(self.operation, self.summary)

    @property
    def may_add_rows(self) -> bool:
        """Check whether it may have rows that its parent lacks."""
        return may_add_rows(self.operation, self.summary)


def keeps_rows(operation: str | None, summary: Mapping[str, str]) -> bool:
    """Check whether a snapshot has exactly the rows of its parent, according to its writer."""
    return operation == "replace" or summary.get(names.JOB) in _KEEPING


def may_add_rows(operation: str | None, summary: Mapping[str, str]) -> bool:
    """Check whether a snapshot may have rows that its parent lacks, by its writer's counts."""
    if operation in ("replace", "delete"):
        return False
    added = summary.get("added-records")
    if added is not None:
        return int(added) > 0
    # writers omit numbers that are 0, except these
    return summary.get("added-data-files") is not None or summary.get("total-records") is None


@dataclass(frozen=True)
class LastWrite:
    """The newest write of a branch.

    :param snapshot_id: as text, because JavaScript has no 64-bit integers.
    :param written_at: its commit time, ISO-8601 UTC.
    :param job: ``ingest`` or ``export_changes``, or None for another writer.
    :param source_time: time at the source, ISO-8601 UTC, up to which the table has every change; runs over a quiet
        source move it without a write.
    :param position: the table's position in its source; None if ingestion never fed it.
    """

    snapshot_id: str
    written_at: str
    job: str | None
    source_time: str | None
    position: dict[str, Any] | None

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the write as JSON, with the table's lag."""
        return {**asdict(self), "source_lag_seconds": source_lag_seconds(self.source_time, now)}


def source_lag_seconds(source_time: str | None, now: datetime) -> float | None:
    """Compute a table's lag by the time at the source (UTC) up to which it has every change; None if unknown."""
    if source_time is None:
        return None
    moment = datetime.fromisoformat(source_time)
    # the clocks of source and worker may differ
    return max(0.0, round((now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC))).total_seconds(), 3))


def describe_writes(snapshots: Iterable[SnapshotFacts], properties: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Describe a branch's last write, maintenance and lag as JSON; its snapshots are newest first."""
    known = list(snapshots)
    written = last_write(known, properties)
    maintained = next((each for each in known if each.is_maintenance), None)
    return {
        "written_at": written.written_at if written else None,
        "source_time": written.source_time if written else None,
        "source_lag_seconds": source_lag_seconds(written.source_time, now) if written else None,
        "maintained_at": iso(maintained.timestamp_ms) if maintained else None,
    }


def last_write(snapshots: Iterable[SnapshotFacts], properties: Mapping[str, str]) -> LastWrite | None:
    """Find the newest snapshot of a branch that is not maintenance, and the table's position.

    :return: None if nothing was ever written, or expiry left only maintenance.
    """
    known: Sequence[SnapshotFacts] = list(snapshots)
    newest = next((snapshot for snapshot in known if not snapshot.is_maintenance), None)
    if newest is None:
        return None
    carrier = nearest_carrier((snapshot.id, snapshot.summary) for snapshot in known)
    position = current_position(carrier, properties)
    return LastWrite(
        snapshot_id=str(newest.id),
        written_at=iso(newest.timestamp_ms),
        job=newest.summary.get(names.JOB),
        source_time=position.read_through if position else None,
        position={"source": position.source, "identity": position.identity, **position.offsets} if position else None,
    )


@dataclass(frozen=True)
class EarlierRows:
    """The average number of rows after earlier runs.

    The number of rows that equality deletes matched is unknown, so this is a range.

    :param fewest: if each equality delete had matched a row.
    :param most: if none had.
    """

    runs: int
    fewest: float
    most: float

    def change(self, rows: int) -> float:
        """Return the minimum share by which a number of rows differs; infinite if there were none before."""
        nearest = min(max(rows, self.fewest), self.most)
        if rows == nearest:
            return 0.0
        return abs(rows - nearest) / nearest if nearest else float("inf")


def earlier_rows(snapshots: Iterable[SnapshotFacts], last: int) -> EarlierRows | None:
    """Average the rows after the last runs that wrote to a branch, without the newest one; None if there was none.

    Consecutive snapshots of one application are one run; only the last one counts.

    :param snapshots: of the branch, from its head towards the root.
    """
    writes = (snapshot for snapshot in snapshots if not snapshot.is_maintenance)
    runs = (next(snapshots_of_run) for _, snapshots_of_run in itertools.groupby(writes, _run))
    counts = [from_summary(run.summary) for run in itertools.islice(runs, 1, last + 1)]
    if not counts:
        return None
    most = [max(count.records - count.position_deletes, 0) for count in counts]
    fewest = [max(rows - count.equality_deletes, 0) for rows, count in zip(most, counts, strict=True)]
    return EarlierRows(len(counts), sum(fewest) / len(counts), sum(most) / len(counts))


def _run(snapshot: SnapshotFacts) -> object:
    return snapshot.summary.get(_APPLICATION, snapshot.id)
