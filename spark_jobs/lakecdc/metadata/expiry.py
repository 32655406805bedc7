"""Cutoff times of snapshots and rows, and the snapshots that are old enough to expire."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from lakecdc.contract.expiring import ExpirePartitionsOptions, ExpireSnapshotsOptions
from lakecdc.contract.fields import parse_moment


def cutoff_ms(options: ExpireSnapshotsOptions, now: float) -> int:
    """Return the time before which snapshots expire, in milliseconds since 1970.

    :param now: seconds since 1970.
    :raises SpecError: ``older_than`` is not a valid time.
    """
    if options.older_than is None:
        return int((now - options.max_age) * 1000)
    return int(parse_moment(options.older_than, "options.older_than").timestamp() * 1000)


def old_enough(snapshots: Mapping[int, int], retained: Collection[int], cutoff: int) -> list[int]:
    """Return the snapshots that may expire by age, ignoring other reasons to keep them.

    :param snapshots: milliseconds since 1970 by id.
    :param retained: snapshots of refs, and the newest of each branch, which stay at any age.
    """
    return [snapshot for snapshot, moment in snapshots.items() if moment < cutoff and snapshot not in retained]


def no_snapshot_expires(cutoff: int) -> str:
    """Explain in the report why nothing expires."""
    return f"no snapshot before {iso(cutoff)} can expire"


def row_cutoff(options: ExpirePartitionsOptions, now: datetime) -> datetime | None:
    """Return the time before which rows expire; None if no age is given.

    :raises SpecError: ``older_than`` is not a valid time.
    """
    if options.older_than is not None:
        return parse_moment(options.older_than, "options.older_than")
    if not options.max_age:
        return None
    moment = now.astimezone(UTC) - timedelta(seconds=options.max_age)
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def no_row_expires(cutoff: str) -> str:
    """Explain in the report why no row expires; the cutoff is an ISO-8601 time."""
    return f"no row is from before {cutoff}"


def iso(milliseconds: int) -> str:
    """Format a time in ISO-8601."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
