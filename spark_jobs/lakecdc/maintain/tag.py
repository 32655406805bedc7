"""Tags of past days and months, and people's own tags and branches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from lakecdc.contract.errors import InputError
from lakecdc.contract.options import RefChange, TagSnapshotsOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.refs import Ref, change_refs, read_refs
from lakecdc.maintain.rewrite import nothing
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot


def tag_snapshots(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Keep the tags of past days and months, and make, move and drop those that are asked for, in one commit.

    :raises InputError: a change names something that is not there, or makes what is there already.
    :raises ConflictError: another writer was faster.
    """
    options = spec.options
    assert isinstance(options, TagSnapshotsOptions)
    ancestors = list(table.refresh().ancestors())
    if not ancestors:
        return nothing(table, "the table has no snapshot")
    refs, now = read_refs(table), datetime.now(UTC)
    wanted = periodic(options, ancestors, refs, now)
    forward = [change.name for change in options.changes if change.action == "fast_forward"]
    wanted |= {change.name: _asked(table, change, ancestors, refs) for change in options.changes}
    wanted = {name: ref for name, ref in wanted.items() if ref != refs.get(name)}
    metrics = {
        "refs_created": sum(name not in refs for name in wanted),
        "refs_moved": sum(name in refs and ref is not None for name, ref in wanted.items()),
        "refs_dropped": sum(ref is None for ref in wanted.values()),
        "refs": len(refs),
        "changed": sorted(wanted),
    }
    if not wanted:
        return nothing(table, "all tags and branches are as they should be", ancestors[0], **metrics)
    if options.dry_run:
        return nothing(table, "dry run: nothing was changed", ancestors[0], **metrics)
    change_refs(table, wanted, forward)
    head = table.head()
    after = str(head.id) if head else None
    return TableReport(table.name, "done", snapshot_before=str(ancestors[0].id), snapshot_after=after, metrics=metrics)


def periodic(
    options: TagSnapshotsOptions, ancestors: Sequence[Snapshot], refs: Iterable[str], now: datetime
) -> dict[str, Ref | None]:
    """The tags of past days and months that have to be made or dropped.

    A tag stays where it was put. A day or month whose snapshots have all expired gets none.

    :param ancestors: of the head of ``main``, newest first.
    :param refs: names of the tags there are.
    :param now: the present moment; only periods that are over by then have a last snapshot.
    """
    today = now.astimezone(ZoneInfo(options.zone)).date()
    ends = {names.DAY_TAG_PREFIX + day.isoformat(): day + timedelta(1) for day in _days(today, options.days)}
    ends |= {names.MONTH_TAG_PREFIX + f"{first:%Y-%m}": _next_month(first) for first in _months(today, options.months)}
    kept = (names.DAY_TAG_PREFIX, names.MONTH_TAG_PREFIX)
    wanted: dict[str, Ref | None] = {tag: None for tag in refs if tag.startswith(kept) and tag not in ends}
    for tag in ends.keys() - set(refs):
        midnight = datetime(ends[tag].year, ends[tag].month, ends[tag].day, tzinfo=ZoneInfo(options.zone))
        if found := newest_by(ancestors, midnight):
            wanted[tag] = Ref(found.id, "tag")
    return wanted


def newest_by(ancestors: Sequence[Snapshot], moment: datetime) -> Snapshot | None:
    """The newest snapshot that was there before a moment."""
    return next((s for s in ancestors if s.timestamp_ms < moment.timestamp() * 1000), None)


def _days(today: date, count: int) -> Iterator[date]:
    return (today - timedelta(number) for number in range(1, count + 1))


def _months(today: date, count: int) -> Iterator[date]:
    first = today.replace(day=1)
    for _ in range(count):
        first = (first - timedelta(1)).replace(day=1)
        yield first


def _next_month(first: date) -> date:
    return (first + timedelta(31)).replace(day=1)


def _asked(table: IcebergTable, change: RefChange, ancestors: Sequence[Snapshot], refs: dict[str, Ref]) -> Ref | None:
    """What a change makes of its tag or branch."""
    present = refs.get(change.name)
    if (present is None) != (change.action == "create"):
        state = "exists already" if present else "does not exist"
        raise InputError(
            f"The tag or branch {change.name!r} {state}: it cannot be {_DONE[change.action]}.", table=table.name
        )
    if change.action == "drop":
        return None
    snapshot = _snapshot(table, change, ancestors, refs)
    kind = present.kind if present else change.kind
    if change.action == "fast_forward" and kind != "branch":
        raise InputError(f"{change.name!r} is a tag: only branches are fast-forwarded.", table=table.name)
    age = present.max_age_ms if present else None
    if change.max_age is not None:
        # Iceberg counts a ref's age from the time of its snapshot, not from the time the ref was made
        age = max(int(time.time() * 1000) - snapshot.timestamp_ms, 0) + int(change.max_age * 1000)
    return Ref(snapshot.id, kind, age)


_DONE = {"create": "created", "move": "moved", "fast_forward": "fast-forwarded", "drop": "dropped"}


def _snapshot(table: IcebergTable, change: RefChange, ancestors: Sequence[Snapshot], refs: dict[str, Ref]) -> Snapshot:
    """The snapshot that a change names."""
    to = change.to
    if to is None:
        return ancestors[0]
    named = refs[to].snapshot_id if to in refs else int(to) if to.isdecimal() else None
    found = table.snapshot(named) if named is not None else None
    if found is None and named is None:
        try:
            moment = datetime.fromisoformat(to)
        except ValueError:
            moment = None
        found = newest_by(ancestors, moment if moment.tzinfo else moment.replace(tzinfo=UTC)) if moment else None
    if found is None:
        raise InputError(
            f"There is no snapshot {to!r} for {change.name!r}.",
            table=table.name,
            hint="Give the id of a snapshot that has not expired, a tag, a branch, or an ISO-8601 moment.",
        )
    return found
