"""Until when snapshots and rows expire, and which snapshots are so old."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from lakecdc.contract.fields import parse_moment
from lakecdc.contract.options import ExpirePartitionsOptions, ExpireSnapshotsOptions


def cutoff_ms(options: ExpireSnapshotsOptions, now: float) -> int:
    """The moment before which snapshots are to expire, in milliseconds since 1970.

    :param now: seconds since 1970.
    :raises SpecError: ``older_than`` is no moment.
    """
    if options.older_than is None:
        return int((now - options.max_age) * 1000)
    return int(parse_moment(options.older_than, "options.older_than").timestamp() * 1000)


def old_enough(snapshots: Mapping[int, int], kept: Collection[int], cutoff: int) -> list[int]:
    """Snapshots that may expire, who needs them not considered.

    :param snapshots: of the table: milliseconds since 1970 by id.
    :param kept: those that tags and branches name, and the last ones of each branch that stay whatever their age.
    :param cutoff: see :func:`cutoff_ms`.
    """
    return [snapshot for snapshot, moment in snapshots.items() if moment < cutoff and snapshot not in kept]


def none_can_go(cutoff: int) -> str:
    """Why nothing expires, for the report."""
    return f"no snapshot before {iso(cutoff)} can go"


def row_cutoff(options: ExpirePartitionsOptions, now: datetime) -> datetime | None:
    """The moment before which rows are to expire; None if nobody has said.

    :param now: with a zone.
    :raises SpecError: ``older_than`` is no moment.
    """
    if options.older_than is not None:
        return parse_moment(options.older_than, "options.older_than")
    if not options.max_age:
        return None
    moment = now.astimezone(UTC) - timedelta(seconds=options.max_age)
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def no_row_can_go(cutoff: str) -> str:
    """Why no row expires, for the report.

    :param cutoff: ISO-8601 moment.
    """
    return f"no row is from before {cutoff}"


def iso(milliseconds: int) -> str:
    """A moment in ISO-8601."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
