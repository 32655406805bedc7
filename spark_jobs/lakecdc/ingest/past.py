"""What a batch tells of a row before an event that leaves values out, since the row was whole or had another key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.completion import MAX_KEY_CHANGES
from lakecdc.ingest.fold import is_open, without_void
from lakecdc.ingest.formats.changes import row_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.batch import Batch

# of a folded row: more events than one, or one that has moved it
_HAS_PAST = "n_r + n_c + n_u + n_d > 1 OR old_key IS NOT NULL"


def past_of(batch: Batch, rows: DataFrame) -> DataFrame:
    """Return the events that rows are made of, each with its own placeholders.

    :param batch: as the source tells it, before any cleaning.
    :param rows: folded rows of it with placeholders, which may be cleaned.
    """
    if batch.target.clean is None and rows.where(_HAS_PAST).isEmpty():
        return rows
    names = rows.select("key.*").columns
    wanted = rows.select(row_key("key", names).alias("place"), "order").localCheckpoint()
    assert batch.rows is not None
    changes = batch.rows.every_event().frame
    told = changes.columns
    changes = without_void(changes, batch.truncate_order)
    events = changes.withColumns({"at": row_key("key", batch.key), "was": row_key("old_key", batch.key)})
    last = events.where(is_open()).join(
        wanted, (F.col("at") == F.col("place")) & events["order"].eqNullSafe(wanted["order"]), "left_semi"
    )
    found = last = last.localCheckpoint()
    for _ in range(MAX_KEY_CHANGES):
        # a row that has moved has its past under the key that it had
        ends = last.select(F.coalesce("was", "at").alias("place"), F.col("order").alias("until"))
        before = events.join(ends, F.col("at") == F.col("place")).where("order < until")
        began = F.when(~is_open() | F.col("was").isNotNull(), F.col("order"))
        since = before.groupBy("place", "until").agg(F.max(began).alias("since"))
        past = before.where(is_open()).join(since, ["place", "until"]).where("since IS NULL OR order >= since")
        last = past.select(*events.columns).localCheckpoint()
        found = found.unionByName(last)
        last = last.where("was IS NOT NULL")
        if last.isEmpty():
            break
    return found.select(*told)
