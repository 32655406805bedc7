"""Quarantine events of a database with a value that does not fit its column; the others go on.

In a log they are found before it is applied, in a full load while it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest import quarantine
from lakecdc.ingest.formats.text_columns import JUDGED
from lakecdc.sql import sql_types

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, Row

    from lakecdc.ingest.batch import Batch, Rejected

_REFUSAL = "values do not fit their columns"


def with_misfits(batch: Batch, misfits: DataFrame, events: int) -> Batch:
    """Return a batch with events rejected whose values do not fit.

    :param misfits: these events, which the batch lacks.
    :param events: number of all events of the source.
    """
    key = F.col("key")
    lacking = F.array_compact(F.array(*[F.when(key[k].isNull(), F.lit(k)) for k in batch.key]).cast("array<string>"))
    bad = misfits.withColumn("lacking", lacking)
    kinds = bad.select("misfits", "lacking").distinct().collect()
    if not kinds:
        return batch
    rejected = reduce(add, [_rejected(batch, bad, kind) for kind in kinds])
    return batch.with_rejected(rejected).with_facts(rows_read=events)


def _rejected(batch: Batch, bad: DataFrame, kind: Row) -> Rejected:
    """Reject the events whose values do not fit in the columns of ``kind``; these columns are kept as text."""
    misfits, lacking = kind["misfits"], kind["lacking"]
    events = bad.where((F.col("misfits") == _array(misfits)) & (F.col("lacking") == _array(lacking)))
    types = sql_types(events.select("row.*"))
    keyed, op = bool(batch.key), F.col("op")

    def member(name: str) -> Expression:
        if name in misfits:
            return F.col("texts")[name]
        if not keyed:
            return F.col("row")[name]
        # a delete has only its key
        of_key = F.col("key")[name] if name in batch.key else F.lit(None).cast(types[name])
        return F.when(op == "d", of_key).otherwise(F.col("row")[name])

    def key_of(struct: str, texts: str, names: Sequence[str]) -> Expression:
        members = [(F.col(texts) if k in names else F.col(struct))[k].alias(k) for k in batch.key]
        return F.when(F.col(struct).isNotNull(), F.struct(*members))

    kept = {"row": F.struct(*[member(name).alias(name) for name in types])}
    if keyed:
        kept |= {"key": key_of("key", "texts", lacking), "old_key": key_of("old_key", "old_texts", misfits)}
    events = events.withColumns(kept)
    listed = ", ".join(f"{name} ({types[name]})" for name in misfits)
    return quarantine.of_events(batch, events.drop(*JUDGED, "lacking"), "type", F.lit(f"{_REFUSAL}: {listed}"))


def _array(names: Sequence[str]) -> Expression:
    return F.array(*map(F.lit, names)).cast("array<string>")
