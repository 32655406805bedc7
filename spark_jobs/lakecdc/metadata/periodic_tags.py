"""Tags of past days and months: which there are to be, and which not any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from lakecdc.contract.options import TagSnapshotsOptions
from lakecdc.metadata import names

#: why no tag is made or dropped, for the report
AS_WANTED = "all tags and branches are as they should be"


def periodic_tags(
    options: TagSnapshotsOptions, ancestors: Sequence[tuple[int, int]], refs: Iterable[str], now: datetime
) -> dict[str, int | None]:
    """The tags of past days and months that have to be made or dropped: the snapshot of each, None for those to drop.

    A tag stays where it was put. A day or month whose snapshots have all expired gets none.

    :param ancestors: of the head of ``main``, newest first: id, and milliseconds since 1970.
    :param refs: names of the tags there are.
    :param now: the present moment; only periods that are over by then have a last snapshot.
    """
    today = now.astimezone(ZoneInfo(options.zone)).date()
    ends = {names.DAY_TAG_PREFIX + day.isoformat(): day + timedelta(1) for day in _days(today, options.days)}
    ends |= {names.MONTH_TAG_PREFIX + f"{first:%Y-%m}": _next_month(first) for first in _months(today, options.months)}
    kept = (names.DAY_TAG_PREFIX, names.MONTH_TAG_PREFIX)
    wanted: dict[str, int | None] = {tag: None for tag in refs if tag.startswith(kept) and tag not in ends}
    for tag in ends.keys() - set(refs):
        midnight = datetime(ends[tag].year, ends[tag].month, ends[tag].day, tzinfo=ZoneInfo(options.zone))
        if (found := newest_by(ancestors, midnight)) is not None:
            wanted[tag] = found
    return wanted


def newest_by(ancestors: Iterable[tuple[int, int]], moment: datetime) -> int | None:
    """The newest snapshot that was there before a moment.

    :param ancestors: newest first: id, and milliseconds since 1970.
    """
    return next((snapshot for snapshot, at in ancestors if at < moment.timestamp() * 1000), None)


def _days(today: date, count: int) -> Iterator[date]:
    return (today - timedelta(number) for number in range(1, count + 1))


def _months(today: date, count: int) -> Iterator[date]:
    first = today.replace(day=1)
    for _ in range(count):
        first = (first - timedelta(1)).replace(day=1)
        yield first


def _next_month(first: date) -> date:
    return (first + timedelta(31)).replace(day=1)
