"""Choose how to apply a batch, and apply it; mode ``auto`` decides for each batch by measurements."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.iceberg import definition, scratch
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.apply.merge import merge
from lakecdc.ingest.apply.publish import Applied
from lakecdc.ingest.apply.upsert import upsert
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.ingest.tables import columns_outside_key
from lakecdc.metadata import totals
from lakecdc.metadata.positions import Position
from lakecdc.sql import quoted_column

_LATE_TRUNCATE = "a TRUNCATE was late: the rows that it removes share files with newer ones"
# files of which a batch changes at least this share of the rows would soon be read in full anyway
_DENSE = 0.2
# equality-delete files allowed if the spec sets no max_delete_files
_MOST_DELETE_FILES = 200


def check_debt(table: IcebergTable, batch: Batch, limit: int) -> None:
    """Refuse a batch if the table already has too many equality deletes, before anything is written.

    Equality deletes slow down every read until ``rewrite_delete_files`` has replaced them.

    :param limit: number of equality-delete files; 0 for no limit.
    :raises ConflictError: there are too many.
    """
    if not limit or batch.target.mode != "upsert" or batch.rows is None or batch.full_load:
        return
    outstanding = equality_delete_files(table)
    if outstanding >= limit:
        raise ConflictError(
            f"{outstanding} equality-delete files are outstanding, and max_delete_files is {limit}: no further batch "
            "was applied, new events wait.",
            table=table.name,
            hint="Run the job rewrite_delete_files on the table, then ingest again.",
            delete_files=outstanding,
        )


def equality_delete_files(table: IcebergTable) -> int:
    """Count the live equality-delete files, by the snapshot summaries."""
    return totals.equality_delete_files(snapshot.summary for snapshot in table.ancestors())


def choose(table: IcebergTable, batch: Batch, max_delete_files: int, mark: str | None) -> tuple[str, dict[str, Any]]:
    """Choose how to apply a batch.

    :param batch: folded, unless it is a full load.
    :param max_delete_files: number of equality-delete files from which ``auto`` adds no more; 0 means 200.
    :param mark: highest order key applied to the table.
    :return: ``upsert`` or ``merge``, and the measured reasons, for the report.
    :raises InputError: only a MERGE can apply it, but it must be audited.
    """
    # the table may have rows that are newer than the TRUNCATE
    if batch.truncate_order and mark and batch.truncate_order <= mark:
        if batch.commit.audit is not None:
            raise InputError(
                "A TRUNCATE arrived after later changes: it needs a MERGE, which cannot be audited.",
                table=table.name,
                hint="Remove publish for one run, or reload the table.",
            )
        return "merge", {"mode_chosen": "merge", "mode_reason": _LATE_TRUNCATE}
    if batch.target.mode != "auto":
        return batch.target.mode, {}
    if batch.rows is None or not batch.rows.folded:
        # without rows, or for the first rows of a table, both are equal, but upsert requires partitions of the key
        return "merge", {}
    mode, reason = _choose_by_size(table, batch, batch.rows, max_delete_files or _MOST_DELETE_FILES)
    return mode, {"mode_chosen": mode, "mode_reason": reason}


def _choose_by_size(table: IcebergTable, batch: Batch, rows: Rows, limit: int) -> tuple[str, str]:
    specs = {*definition.live_specs(table), definition.current_spec_id(table)}
    outside = sorted({column for spec_id in specs for column in columns_outside_key(table, batch.key, spec_id)})
    if outside:
        return "merge", f"the partitions derive from {', '.join(outside)}, not only from the key"
    head = table.head()
    if head is None or not totals.from_summary(head.summary).records:
        return "upsert", "the table is empty"
    outstanding = equality_delete_files(table)
    if outstanding >= limit:
        return "merge", f"{outstanding} equality-delete files are outstanding, {limit} are allowed"
    files, records = _touched(table, batch.key, rows)
    mode = "merge" if files and rows.keys >= _DENSE * records else "upsert"
    return mode, f"{rows.keys} keys; the {files} data files within their bounds have {records} rows"


def _touched(table: IcebergTable, key: tuple[str, ...], rows: Rows) -> tuple[int, int]:
    """Count the data files whose key bounds overlap the batch's, and their rows, from manifests."""
    ends = rows.frame.agg(*[f(F.col("key")[k]) for k in key for f in (F.min, F.max)]).first()
    assert ends is not None
    files = table.metadata("files").where("content = 0")
    for place, name in enumerate(key):
        low, high = (F.lit(ends[2 * place + i]) for i in range(2))
        bounds = f"readable_metrics.{quoted_column(name)}"
        meets = (F.col(f"{bounds}.lower_bound") <= high) & (F.col(f"{bounds}.upper_bound") >= low)
        files = files.where(F.coalesce(meets, F.lit(True)))
    row = files.agg(F.count("*"), F.sum("record_count")).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)


def apply_rows(mode: str, table: IcebergTable, batch: Batch, position: Position, started_from: str | None) -> Applied:
    """Commit folded rows, or only a position, in mode ``upsert`` or ``merge``; see there."""
    applied = (upsert if mode == "upsert" else merge)(table, batch, position, started_from)
    scratch.remove_stale(table)
    return applied
