"""Detect topics whose connector follows another log of the database, such as a restored one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.ingest.engine.decoded import Decoded
from lakecdc.ingest.sources.kafka.progress import Progress
from lakecdc.ingest.sources.kafka.topology import RELOAD
from lakecdc.model.order import Stretch, arrival_of, is_change, is_higher, rises, time_of


def refuse_another_log(progress: Progress, read_through: str | None, decoded: Decoded) -> None:
    """Refuse events that are newer than earlier ones of their partition but have lower positions in the source's log.

    A connector that follows its database to another or restored server continues in the same topics with positions of
    another log. Its changes would look old and be dropped. An event that is only sent again is not newer than
    everything read before.

    :param progress: before the batch.
    :param read_through: newest source time before the batch, ISO-8601; None if there is none.
    :raises InputError: there is such an event.
    """
    seen = int(datetime.fromisoformat(read_through).timestamp() * 1000) if read_through else 0
    marks = {f"{topic}/{partition}": mark for (topic, partition), mark in progress.marks.items()}
    for place, high in (decoded.high_orders or {}).items():
        mark = marks.get(place, "")
        is_known = not is_change(high) or rises(high)
        lower = mark if read_through and is_known and is_higher(mark, high) and time_of(high) > seen else None
        lower = lower or _left(decoded.stretches.get(place, ()), mark if rises(mark) else "", seen)
        if lower:
            than = f"{read_through}, up to which the table was fed,"
            if lower != mark:
                than = f"others before them in this batch, of {_moment(lower)},"
            raise _refusal(place, than)


def _left(stretches: Sequence[Stretch], mark: str, seen: int) -> str | None:
    """Return the order key of a change that precedes a newer, lower one of its partition; None without such a pair.

    :param mark: highest order key before the stretches; empty if there is none.
    :param seen: newest source time before them, milliseconds since 1970.
    """
    top = mark
    for first, newest, high in sorted(stretches, key=lambda stretch: arrival_of(stretch[0])):
        for before, change in ((top, first), (top, newest), (high, newest)):
            came_before = before == mark or arrival_of(before) < arrival_of(change)
            if before and came_before and is_higher(before, change) and time_of(change) > seen:
                return before
        top, seen = max(top, high), max(seen, time_of(newest))
    return None


def _refusal(place: str, than: str) -> InputError:
    topic, _, partition = place.rpartition("/")
    return InputError(
        f"The source has another log now: the events of {place} are newer than {than} but have lower positions. The "
        "connector follows another server, or a restored one.",
        hint=f"To continue, {RELOAD}.",
        topic=topic,
        partition=int(partition),
    )


def _moment(order: str) -> str:
    return datetime.fromtimestamp(time_of(order) / 1000, UTC).isoformat()
