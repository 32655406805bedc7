"""Topics that go on while the database behind them has another log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.ingest.order import time_of
from lakecdc.ingest.sources.kafka.topology import RELOAD

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.kafka.progress import Progress


def refuse_another_log(progress: Progress, read_through: str | None, orders: Mapping[str, str], target: Target) -> None:
    """Refuse a batch whose partitions stand lower in the source's log than before, although their events are newer.

    A connector that follows its database to another server, or to a restored one, goes on in the same topics with
    positions of another log. By them its changes would be older than what the table holds, and be dropped. An event
    that is only sent again is not newer than everything read before.

    :param progress: before the batch.
    :param read_through: newest source time before it, ISO-8601; None if there is none.
    :param orders: highest order key of the batch by ``topic/partition``.
    :raises InputError: naming partition and times.
    """
    if read_through is None:
        return
    seen = datetime.fromisoformat(read_through)
    for (topic, partition), mark in progress.marks.items():
        order = orders.get(f"{topic}/{partition}")
        if order and order < mark and time_of(order) > seen.timestamp() * 1000:
            raise InputError(
                f"The source's log has begun anew: the events of {topic}/{partition} are newer than {read_through}, up "
                "to which the table has been fed, and have lower positions. The connector follows another server by "
                "now, or one that was restored.",
                table=target.table,
                hint=f"To go on, {RELOAD}.",
                topic=topic,
                partition=partition,
            )
