"""Topics that go on while the database behind them has another log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.ingest.order import arrival_of, is_change, is_higher, time_of
from lakecdc.ingest.sources.kafka.topology import RELOAD

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.ingest.formats.decoded import Decoded
    from lakecdc.ingest.sources.kafka.progress import Progress


def refuse_another_log(progress: Progress, read_through: str | None, found: Decoded, target: Target) -> None:
    """Refuse events that stand lower in the source's log than ones before them in their partition, although newer.

    A connector that follows its database to another server, or to a restored one, goes on in the same topics with
    positions of another log. By them its changes would be older than what the table holds, and be dropped. An event
    that is only sent again is not newer than everything read before. Where the other log begins within the batch, its
    newest change tells, unless that has passed the positions of the first log by then.

    :param progress: before the batch.
    :param read_through: newest source time before it, ISO-8601; None if there is none.
    :param found: the batch.
    :raises InputError: naming partition and times.
    """
    seen = datetime.fromisoformat(read_through).timestamp() * 1000 if read_through else 0
    marks = {f"{topic}/{partition}": mark for (topic, partition), mark in progress.marks.items()}
    newest_orders = found.newest_orders or {}
    for place, high in (found.high_orders or {}).items():
        mark, newest = marks.get(place, ""), newest_orders.get(place, high)
        if read_through and high < mark and time_of(high) > seen:
            raise _refusal(place, f"{read_through}, up to which the table has been fed,", target)
        within = is_change(high) and is_higher(high, newest) and arrival_of(newest) > arrival_of(high)
        if within and time_of(newest) > seen:
            raise _refusal(place, f"others of this batch before them, of {_moment(high)},", target)


def _refusal(place: str, than: str, target: Target) -> InputError:
    topic, _, partition = place.rpartition("/")
    return InputError(
        f"The source's log has begun anew: the events of {place} are newer than {than} and have lower positions. The "
        "connector follows another server by now, or one that was restored.",
        table=target.table,
        hint=f"To go on, {RELOAD}.",
        topic=topic,
        partition=int(partition),
    )


def _moment(order: str) -> str:
    return datetime.fromtimestamp(time_of(order) / 1000, UTC).isoformat()
