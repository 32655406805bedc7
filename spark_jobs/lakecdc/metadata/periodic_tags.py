"""Tags of past days and months: which to create and which to drop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from lakecdc.contract.expiring import TagSnapshotsOptions
from lakecdc.metadata import names

#: reason in the report for unchanged tags
UP_TO_DATE = "all tags and branches are up to date"


def periodic_tags(
    options: TagSnapshotsOptions, ancestors: Sequence[tuple[int, int]], refs: Iterable[str], now: datetime
) -> dict[str, int | None]:
    """Return the tags of past days and months to create, with their snapshot, or to drop, with None.

    A tag never moves. A day or month whose snapshots have all expired gets none.

    :param ancestors: of the head of ``main``, newest first: id, and milliseconds since 1970.
    :param now: current time; only finished periods have a last snapshot.
    """
    today = now.astimezone(ZoneInfo(options.zone)).date()
    days = [today - timedelta(number) for number in range(1, options.days + 1)]
    ends = {names.DAY_TAG_PREFIX + day.isoformat(): day + timedelta(1) for day in days}
    for first, following in _months(today, options.months):
        ends[names.MONTH_TAG_PREFIX + f"{first:%Y-%m}"] = following
    prefixes = (names.DAY_TAG_PREFIX, names.MONTH_TAG_PREFIX)
    changes: dict[str, int | None] = {tag: None for tag in refs if tag.startswith(prefixes) and tag not in ends}
    for tag in ends.keys() - set(refs):
        midnight = datetime(ends[tag].year, ends[tag].month, ends[tag].day, tzinfo=ZoneInfo(options.zone))
        if (snapshot := newest_by(ancestors, midnight)) is not None:
            changes[tag] = snapshot
    return changes


def newest_by(ancestors: Iterable[tuple[int, int]], moment: datetime) -> int | None:
    """Return the newest snapshot before a time; ancestors are as for :func:`periodic_tags`."""
    return next((snapshot for snapshot, at in ancestors if at < moment.timestamp() * 1000), None)


def _months(today: date, count: int) -> Iterator[tuple[date, date]]:
    """Yield the first days of past months, newest first, each with that of the next month."""
    following = today.replace(day=1)
    for _ in range(count):
        first = (following - timedelta(1)).replace(day=1)
        yield first, following
        following = first
