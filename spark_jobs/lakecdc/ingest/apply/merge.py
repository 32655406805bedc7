"""Mode ``merge``: Iceberg's ``MERGE INTO`` with the order check in its condition.

The join is bounded by the batch's keys: literal values of few keys, or else their bounds, which Iceberg compares with
partitions (values also with buckets) and with the bounds of files. Partition columns outside the key give no bounds,
because a row may leave its partition: this mode supports that, ``upsert`` does not.

The statement runs on a scratch branch of the head. A second, empty commit on it has the position; both become visible
at once when main is fast-forwarded to it, in the transaction that moves the tag. A run whose head or position is
outdated cannot publish. The statement itself does not write the position, because Spark would read it from the session,
which tables fed at the same time share.

Meanwhile the run holds the table's lease, so no maintenance begins on files that the statement replaces. A running
maintenance job delays the statement by at most half a minute; then either may have to start again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.lease import LeaseHeldError, lease_if_free
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable, carrier_of
from lakecdc.ingest.apply import full_load
from lakecdc.ingest.apply.proof import prove
from lakecdc.ingest.apply.publish import (
    Applied,
    Commit,
    Staged,
    StateMovedError,
    enter_history,
    position_summary,
    publish,
    refuse_moved_state,
)
from lakecdc.ingest.apply.rows import row_values, stage_images
from lakecdc.ingest.apply.upsert import anew_if_overtaken, known_state
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.ingest.floor import known_floor
from lakecdc.ingest.lookup import plain
from lakecdc.metadata.positions import Position
from lakecdc.runtime.failpoints import reach
from lakecdc.sql import quoted_column, temporary_view

log = logging.getLogger(__name__)

_ATTEMPTS = 4
# Iceberg compares a list of at most 200 values with a file's bounds
_MOST_VALUES = 200
_MERGE_MODE = "write.merge.mode"
_DELETED = "_lakecdc_deleted"


def merge(table: IcebergTable, batch: Batch, position: Position, started_from: str | None) -> Applied:
    """Commit one folded batch.

    :param batch: its rows are ``key, op, row, order, source_time``, one per key; without rows, only the position is
        committed.
    :param position: the source's position after the batch.
    :param started_from: summary text of the position the batch started from, for the fence.
    :raises StateMovedError: rows changed, expired or were erased meanwhile.
    :raises ConflictError: another run has changed the positions, or other writers changed the head too often.
    """
    mode = batch.target.merge_mode
    if mode and table.properties.get(_MERGE_MODE, "copy-on-write") != mode:
        table.update_properties({_MERGE_MODE: mode})
        table.refresh()
    rows = batch.rows
    if table.head() is None or batch.full_load or (rows is None and not batch.truncate_order):
        return anew_if_overtaken(_without_statement, table, batch, position, started_from)
    reach("before_staging")
    with _source(table, batch, rows) as source:
        # all rows are computed now: events that clean fails for are not added
        enter_history(batch)
        for attempt in range(_ATTEMPTS):
            try:
                return replace(_attempt(table, batch, source, position, started_from), retries=attempt)
            except LeaseHeldError:
                if attempt == _ATTEMPTS - 1:
                    raise
                log.info("%s: another run took the lease first, trying again", table.name)
            except scratch.HeadMovedError as error:
                if attempt == _ATTEMPTS - 1:
                    raise ConflictError(
                        f"Other writers changed the table during each of {_ATTEMPTS} merges.",
                        table=table.name,
                        hint="Do not run maintenance of a merged table at the same time as ingest, then run again.",
                    ) from error
                log.info("%s: the table changed during the merge, trying again", table.name)
    raise AssertionError


def _without_statement(table: IcebergTable, batch: Batch, position: Position, started_from: str | None) -> Applied:
    rows, empty, proof = batch.rows, table.head() is None, prove(table, batch, position)

    def stage(staged: Staged) -> None:
        if batch.full_load:
            full_load.stage(table, batch, staged)
        elif rows is not None:
            staged.data_files += stage_images(table, batch, rows.frame, rows.keys)

    truncate = None if empty else batch.truncate_order
    fence = PositionFence(started_from, floor=known_floor(table, batch))
    truncates = truncate is not None or batch.commit.replaces
    fence.known_rows, fence.state = proof.known_rows, known_state(batch, truncates=truncates)
    return publish(table, stage, Commit(position, fence, truncate, batch.commit.replaces, proof.note), batch)


def _attempt(
    table: IcebergTable, batch: Batch, source: _Source | None, position: Position, started_from: str | None
) -> Applied:
    lease = lease_if_free(table, "ingest")
    base = table.head()
    assert base is not None
    proof = prove(table, batch, position)
    fence = PositionFence(started_from, floor=known_floor(table, batch))
    carrier = carrier_of(table.ancestors())
    if (carrier.text if carrier else None) != started_from:
        raise ConflictError(fence.message, table=table.name, hint="Nothing was published; run again.")
    since = ((each.id, each.operation, each.summary) for each in table.ancestors())
    if batch.commit.state is not None and not batch.commit.state.holds(since):
        message = "Other writers have changed rows since the batch was compared with them."
        raise StateMovedError(message, table=table.name, hint="Nothing was published; run again.")
    with scratch.branch(table, base, lease=lease) as branch:
        name = scratch.sql_name(table, branch)
        if batch.truncate_order:
            # rows without an order key are older than any event
            older = f"coalesce({ORDER_COLUMN}, '') < :order"
            table.spark.sql(f"DELETE FROM {name} WHERE {older}", {"order": batch.truncate_order})
        if source is not None:
            table.spark.sql(_statement(table, name, source, merged=batch.target.merge is not None), source.values)
        reach("after_staging")
        merged = table.refresh().head(branch)
        reach("before_commit")
        try:
            snapshot = scratch.publish(table, branch, base, fence, {**position_summary(position), **proof.note})
        except ConflictError as error:
            refuse_moved_state(table, fence, error)
            raise
    reach("after_commit")
    entries = merged.summary if merged and merged.id != base.id else {}
    counted = ("data-files", "delete-files", "records", "files-size")
    files, deletes, records, size = (int(entries.get(f"added-{what}") or 0) for what in counted)
    return Applied(snapshot, files, deletes, records, size)


class _Source:
    """The batch as a view, its key bounds as SQL conditions on the target ``t``, and their literals."""

    def __init__(self, view: str, key: tuple[str, ...]) -> None:
        self.view, self.key = view, key
        self.bounds: list[str] = []
        self.values: dict[str, Any] = {}

    def literal(self, value: Any, sql_type: str) -> str:
        """Return a value of :func:`plain` as SQL of a type."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f"timestamp_micros(:{name})" if sql_type == "timestamp" else f"CAST(:{name} AS {sql_type})"


@contextmanager
def _source(table: IcebergTable, batch: Batch, rows: Rows | None) -> Iterator[_Source | None]:
    if rows is None:
        yield None
        return
    columns = columns_of(table, row_values(batch) | {k: F.col("key")[k] for k in batch.key})
    frame = rows.frame.select(*columns, (F.col("op") == "d").alias(_DELETED))
    # copy-on-write reads the source several times, and Spark refuses a source with a file's line numbers
    frame = frame.localCheckpoint()
    with temporary_view(frame) as view:
        source = _Source(view, batch.key)
        _bound(table, source, frame)
        yield source


def _bound(table: IcebergTable, source: _Source, frame: DataFrame) -> None:
    types = spark_types(table)
    bounded = [k for k in source.key if types[k] != "binary"]
    measures = [f(F.col(quoted_column(k))) for k in bounded for f in (F.min, F.max, F.approx_count_distinct)]
    if not measures:
        return
    measured = frame.agg(*[m.alias(f"m{i}") for i, m in enumerate(measures)])
    kinds = [types[k] if i < 2 else "bigint" for k in bounded for i in range(3)]
    ends = measured.select(*[plain(f"m{i}", kind) for i, kind in enumerate(kinds)]).first()
    assert ends is not None
    for place, name in enumerate(bounded):
        low, high, count = ends[3 * place : 3 * place + 3]
        if low is None:
            continue
        column, kind = f"t.{quoted_column(name)}", types[name]
        values = _few_values(frame, name, kind) if count <= 2 * _MOST_VALUES else []
        if values:
            source.bounds.append(f"{column} IN ({', '.join(source.literal(v, kind) for v in values)})")
        else:
            bounds = (source.literal(low, kind), source.literal(high, kind))
            source.bounds.append(f"{column} >= {bounds[0]} AND {column} <= {bounds[1]}")


def _few_values(frame: DataFrame, name: str, sql_type: str) -> list[Any]:
    """Return the distinct values of a key column; empty if there are too many."""
    values = frame.select(plain(quoted_column(name), sql_type)).distinct().limit(_MOST_VALUES + 1).collect()
    return [row[0] for row in values] if len(values) <= _MOST_VALUES else []


def merge_into(table: IcebergTable, name: str, batch: Batch, rows: Rows) -> None:
    """Run only the statement, on a table or one of its branches, named as SQL; see :func:`merge`."""
    with _source(table, batch, rows) as source:
        assert source is not None
        table.spark.sql(_statement(table, name, source), source.values)


def _statement(table: IcebergTable, name: str, source: _Source, *, merged: bool = False) -> str:
    """Return the statement; merged rows replace the table's regardless of their order keys."""
    on = [f"t.{quoted_column(k)} = s.{quoted_column(k)}" for k in source.key] + source.bounds
    newer = "true" if merged else f"s.{ORDER_COLUMN} >= coalesce(t.{ORDER_COLUMN}, '')"
    columns = [quoted_column(c) for c in table.column_names]
    assignments = ", ".join(f"t.{c} = s.{c}" for c in columns)
    return f"""
        MERGE INTO {name} t USING {source.view} s ON {" AND ".join(on)}
        WHEN MATCHED AND {newer} AND s.{_DELETED} THEN DELETE
        WHEN MATCHED AND {newer} THEN UPDATE SET {assignments}
        WHEN NOT MATCHED AND NOT s.{_DELETED} THEN
          INSERT ({", ".join(columns)}) VALUES ({", ".join(f"s.{c}" for c in columns)})"""
