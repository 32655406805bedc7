"""Tombstones whose delete event is gone: on a compacted topic they are the only sign that a row went.

A tombstone carries no position. It is placed right behind the last event before it in its partition, which is where
the log had it or earlier than anything that came after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from lakecdc.ingest.formats.message_columns import PLACED
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS, order_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.formats.envelope import Reading


def placed(
    envelopes: DataFrame, marks: Mapping[str, str] | None, high_order: str | None, reading: Reading
) -> DataFrame | None:
    """Return the tombstones that no delete event explains, with an order key.

    :param envelopes: all envelopes of the batch, see ``envelope_frame``.
    :param marks: highest order key applied by ``topic/partition``, for tombstones that come first in their partition.
    :param high_order: highest order key applied at all, where there are no marks.
    :return: these messages with the order key in ``placed``; None if there are none.
    """
    named = envelopes.where("topic IS NOT NULL AND offset IS NOT NULL")
    tombstones = named.where("op = 'x' AND key IS NOT NULL")
    deletes = named.where("op = 'd'").select("topic", "partition", "key").distinct()
    lone = tombstones.join(deletes, ["topic", "partition", "key"], "left_anti").select("topic", "partition").distinct()
    lone = lone.localCheckpoint()
    if lone.isEmpty():
        return None
    there = named.join(F.broadcast(lone), ["topic", "partition"], "left_semi")
    before = Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    first = F.lit(high_order or order_key(reading.epoch, 0))
    if marks:
        known = F.create_map(*[F.lit(x) for pair in marks.items() for x in pair])
        first = F.coalesce(F.try_element_at(known, F.concat_ws("/", "topic", "partition")), first)
    last = F.coalesce(F.max(F.when(F.col("op") != "x", F.col("order"))).over(before), first)
    offset = F.lpad(F.lower(F.hex("offset")), ARRIVAL_DIGITS, "0")
    order = F.concat(F.substring(last, 1, EVENT_DIGITS), offset)
    behind = there.withColumn(PLACED, F.greatest(order, last)).where("op = 'x' AND key IS NOT NULL")
    alone = behind.join(deletes, ["topic", "partition", "key"], "left_anti")
    return alone.drop("op", "source_table", "order", "source_time")
