"""Mode ``auto``: ``upsert`` or ``merge``, decided for each batch by what it and the table look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from lakecdc.iceberg import definition
from lakecdc.ingest.apply import debt
from lakecdc.ingest.tables import columns_outside_key
from lakecdc.metadata import totals
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.batch import Batch

# a batch that changes at least this share of the rows in the files it touches would be read in full soon anyway
_DENSE = 0.2
# equality-delete files that are tolerated where the spec sets no max_delete_files
_MOST_DELETE_FILES = 200


@dataclass(frozen=True)
class Choice:
    """How one batch is applied.

    :param reason: the measured facts that decided.
    """

    mode: Literal["upsert", "merge"]
    reason: str


def choose(table: IcebergTable, batch: Batch, max_delete_files: int) -> Choice:
    """Decide how to apply a batch.

    :param batch: folded.
    :param max_delete_files: equality-delete files at which no more are added; 0: 200.
    """
    outside = _outside_key(table, batch)
    if outside:
        return Choice("merge", f"the partitions derive from {', '.join(outside)}, not from the key alone")
    head = table.head()
    if head is None or not totals.from_summary(head.summary).records:
        return Choice("upsert", "the table is empty")
    limit, found = max_delete_files or _MOST_DELETE_FILES, debt.outstanding(table)
    if found >= limit:
        return Choice("merge", f"{found} equality-delete files are outstanding, {limit} are allowed")
    assert batch.rows is not None
    keys = batch.rows.keys
    files, records = _touched(table, batch, batch.rows.frame)
    share = f"{keys} keys; the {files} data files within their bounds hold {records} rows"
    return Choice("merge" if files and keys >= _DENSE * records else "upsert", share)


def _outside_key(table: IcebergTable, batch: Batch) -> list[str]:
    specs = {*definition.live_specs(table), definition.current_spec_id(table)}
    return sorted({column for spec_id in specs for column in columns_outside_key(table, batch.key, spec_id)})


def _touched(table: IcebergTable, batch: Batch, folded: DataFrame) -> tuple[int, int]:
    """Return data files whose key bounds meet the batch's, and their rows; only manifests are read."""
    ends = folded.agg(*[f(F.col("key")[k]) for k in batch.key for f in (F.min, F.max)]).first()
    assert ends is not None
    files = table.metadata("files").where("content = 0")
    for place, name in enumerate(batch.key):
        low, high = (F.lit(ends[2 * place + i]) for i in range(2))
        bounds = f"readable_metrics.{quoted_column(name)}"
        meets = (F.col(f"{bounds}.lower_bound") <= high) & (F.col(f"{bounds}.upper_bound") >= low)
        files = files.where(F.coalesce(meets, F.lit(True)))
    row = files.agg(F.count("*"), F.sum("record_count")).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)
