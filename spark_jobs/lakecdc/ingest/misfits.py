"""Events of a database with a value that its column cannot take: they go to the quarantine, and the others go on.

Looking for them costs the batch a second time, so it is done once one has stopped the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakecdc.ingest import quarantine
from lakecdc.ingest.sources.text_values import JUDGED
from lakecdc.sql import sql_types

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, Row

    from lakecdc.ingest.batch import Batch, Rejected

_REFUSAL = "values do not fit their columns"


def without_misfits(batch: Batch) -> Batch | None:
    """Return a batch without the events whose values do not fit, which are rejected; None if all fit."""
    if batch.rows is None or batch.rows.judged is None:
        return None
    seen, told = Observation(), batch.rows.judged()
    counted = told.observe(seen, F.count(F.lit(1)).alias("rows"))
    key = F.col("key")
    lacking = F.array_compact(F.array(*[F.when(key[k].isNull(), F.lit(k)) for k in batch.key]).cast("array<string>"))
    bad = counted.where("size(misfits) > 0").withColumn("lacking", lacking).localCheckpoint()
    if bad.isEmpty():
        return None
    # a change of the key is two events of one place
    moved = bad.where("old_key IS NOT NULL").select(F.col("order").alias("at"), F.col("old_key").alias("was"))
    rest = told.where("size(misfits) = 0")
    if not moved.isEmpty():
        twin = (F.col("op") == "d") & (F.col("order") == F.col("at")) & F.col("key").eqNullSafe(F.col("was"))
        rest, bad = (part.join(F.broadcast(moved), twin, "left_anti") for part in (rest, bad))
        bad = bad.localCheckpoint()
    kinds = bad.select("misfits", "lacking").distinct().collect()
    rejected = reduce(add, [_rejected(batch, bad, kind) for kind in kinds])
    fitting = replace(batch, rows=batch.rows.with_fitting(rest.drop(*JUDGED)))
    return fitting.with_rejected(rejected).with_facts(rows_read=seen.get["rows"])


def _rejected(batch: Batch, bad: DataFrame, kind: Row) -> Rejected:
    """Return the messages of the events whose values do not fit in certain columns.

    What does not fit is kept as text, so that these columns are strings in what is kept.

    :param kind: the columns, and those of the key that have no value.
    """
    misfits, lacking = kind["misfits"], kind["lacking"]
    events = bad.where((F.col("misfits") == _array(misfits)) & (F.col("lacking") == _array(lacking)))
    types = sql_types(events.select("row.*"))
    keyed, op = bool(batch.key), F.col("op")

    def member(name: str) -> Expression:
        if name in misfits:
            return F.col("texts")[name]
        if not keyed:
            return F.col("row")[name]
        # of a delete its key is all there is
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
