"""When a table was written last, from snapshot summaries: maintenance is no write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from lakecdc.metadata import names
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.policy import KEEPING
from lakecdc.metadata.positions import current_position, nearest_carrier

#: jobs that add rows; every other one of ours changes no row, but for old ones that it removes
_WRITING = ("ingest", "export_changes", "scd2")
_KEEPING = {*KEEPING, "rebucket"}


@dataclass(frozen=True)
class SnapshotFacts:
    """What a snapshot says of itself.

    :param timestamp_ms: when it was made, milliseconds since 1970.
    :param operation: append, overwrite, delete or replace.
    """

    snapshot_id: int
    timestamp_ms: int
    operation: str | None
    summary: Mapping[str, str]

    @property
    def is_maintenance(self) -> bool:
        """Whether it holds the same rows as the one before."""
        job = self.summary.get(names.JOB)
        return self.operation == "replace" or (job is not None and job not in _WRITING)

    @property
    def keeps_rows(self) -> bool:
        """Whether it holds the same rows as the one before, also old ones, which a job of ours may have removed."""
        return self.operation == "replace" or self.summary.get(names.JOB) in _KEEPING


@dataclass(frozen=True)
class LastWrite:
    """The newest write of a branch.

    :param snapshot_id: as text, because JavaScript cannot hold 64 bits.
    :param written_at: when it was committed, ISO-8601 UTC.
    :param job: ``ingest`` or ``export_changes``, or None if somebody else has written.
    :param source_time: moment at the source, ISO-8601 UTC, up to which the table holds every change; runs over a quiet
        source move it on without a write.
    :param position: where in its source the table stands; None if ingestion has never fed it.
    """

    snapshot_id: str
    written_at: str
    job: str | None
    source_time: str | None
    position: dict[str, Any] | None

    def facts(self, now: datetime) -> dict[str, Any]:
        """As JSON, with how far the table is behind its source.

        :param now: with a zone.
        """
        return {**asdict(self), "source_lag_seconds": self.source_lag_seconds(now)}

    def source_lag_seconds(self, now: datetime) -> float | None:
        """How long ago the table held every change of its source; None if nobody knows.

        :param now: with a zone.
        """
        return source_lag_seconds(self.source_time, now)


def source_lag_seconds(source_time: str | None, now: datetime) -> float | None:
    """How long ago a table held every change of its source; None if nobody knows.

    :param source_time: moment at the source up to which it does, ISO-8601, without a zone UTC.
    :param now: with a zone.
    """
    if source_time is None:
        return None
    moment = datetime.fromisoformat(source_time)
    # clocks of source and worker differ
    return max(0.0, round((now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC))).total_seconds(), 3))


def standing(snapshots: Iterable[SnapshotFacts], properties: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """When a branch was written and maintained last, and how far it is behind its source, as JSON.

    :param snapshots: of the branch, from its head towards the root.
    :param properties: the table's.
    :param now: with a zone.
    """
    known = list(snapshots)
    written = last_write(known, properties)
    maintained = next((each for each in known if each.is_maintenance), None)
    return {
        "written_at": written.written_at if written else None,
        "source_time": written.source_time if written else None,
        "source_lag_seconds": written.source_lag_seconds(now) if written else None,
        "maintained_at": iso(maintained.timestamp_ms) if maintained else None,
    }


def last_write(snapshots: Iterable[SnapshotFacts], properties: Mapping[str, str]) -> LastWrite | None:
    """Find the newest snapshot of a branch that is no maintenance, and where the table stands.

    :param snapshots: of the branch, from its head towards the root.
    :param properties: the table's.
    :return: None if nothing was ever written, or expiry has left only maintenance.
    """
    known: Sequence[SnapshotFacts] = list(snapshots)
    newest = next((snapshot for snapshot in known if not snapshot.is_maintenance), None)
    if newest is None:
        return None
    carrier = nearest_carrier((snapshot.snapshot_id, snapshot.summary) for snapshot in known)
    stands = current_position(carrier, properties)
    return LastWrite(
        snapshot_id=str(newest.snapshot_id),
        written_at=iso(newest.timestamp_ms),
        job=newest.summary.get(names.JOB),
        source_time=stands.read_through if stands else None,
        position={"source": stands.source, "identity": stands.identity, **stands.offsets} if stands else None,
    )
