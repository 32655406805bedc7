"""A moment as a branch of its table, with the missing events committed at once, or as rows to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.commit import RowChanges, commit_to_branch
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.refs import Ref, put_refs, read_refs
from lakecdc.iceberg.staging import discard
from lakecdc.iceberg.table import Branch, IcebergTable, Snapshot, carrier_of
from lakecdc.ingest.api import (
    Batch,
    PastBranch,
    Staged,
    apply_onto_past,
    clean_for_table,
    fold_onto_past,
    table_columns,
)
from lakecdc.metadata import names
from lakecdc.moments.events import batch_of
from lakecdc.moments.stretch import Stretch, micros, stretch_to
from lakecdc.runtime.failpoints import reach
from lakecdc.sql import quoted_column

JOB = "restore_moment"


@dataclass(frozen=True)
class Shown:
    """Branch that shows a moment for some seconds."""

    branch: str
    keep_for: float

    @property
    def tag(self) -> str:
        """Return the name of the tag, which stays in place when users write to the branch."""
        return f"{self.branch}-as-restored"


def restore(stretch: Stretch, batch: Batch, note: str, shown: Shown) -> Snapshot:
    """Create branch and tag, and return their snapshot.

    :param batch: the events missing from the base.
    :raises InputError: an event omits a value that is recorded nowhere.
    :raises ConflictError: expiry removed the base meanwhile.
    """
    batch = clean_for_table(stretch.table, batch)
    with scratch.branch(stretch.table, stretch.base, names.MOMENT_BRANCH_PREFIX) as name:
        past = _past(stretch, name)
        if gone := _gone(batch):
            past.branch.spark.sql(f"DELETE FROM {scratch.sql_name(past.branch, name)} WHERE {gone}")
            past.branch.refresh()
        staged = Staged()
        try:
            with fold_onto_past(past, batch) as newest:
                if newest is not None:
                    apply_onto_past(past, batch, newest, name, staged)
            reach("before_commit")
            snapshot = _publish(stretch, name, staged, note, shown)
        except (InputError, ConflictError):
            # after any other error the commit may have arrived
            discard(stretch.table, staged.files)
            raise
    reach("after_commit")
    return snapshot


@contextmanager
def rows_of(stretch: Stretch, batch: Batch) -> Iterator[DataFrame]:
    """Read the rows of the moment with the table's columns; valid inside the context."""
    batch = clean_for_table(stretch.table, batch)
    # the branch keeps the base from expiring
    with scratch.branch(stretch.table, stretch.base, names.MOMENT_BRANCH_PREFIX) as name:
        past = _past(stretch, name)
        gone = _gone(batch)
        rows = past.branch.read(where=f"NOT ({gone})" if gone else "true")
        with fold_onto_past(past, batch) as newest:
            if newest is None:
                yield rows
                return
            columns = [quoted_column(column) for column in rows.columns]
            untouched = rows.join(newest.frame.select("key.*"), list(batch.key), "left_anti").select(*columns)
            yield untouched.unionByName(newest.frame.where("op != 'd'").select(*table_columns(past.branch, batch)))


def restored_before(stretch: Stretch, shown: Shown) -> str | None:
    """Return the note of the moment on the branch, if there is one; refuse a branch that shows something else."""
    refs = read_refs(stretch.table)
    branch, tag = refs.get(shown.branch), refs.get(shown.tag)
    if branch is None and tag is None:
        return None
    head = stretch.table.head(shown.branch)
    note = head.summary.get(names.MOMENT) if head else None
    same = note is not None and json.loads(note)["moment"] == stretch.moment.isoformat()
    if not same or not branch or not tag or branch.snapshot_id != tag.snapshot_id:
        raise InputError(
            f"The branch or tag {shown.branch!r} already exists and is not this moment as restored.",
            table=stretch.table.name,
            hint="Give options.branch another name, or drop branch and tag.",
        )
    return note


def note_of(stretch: Stretch, events: int) -> str:
    """Describe a restored moment for the summary, equally for equal rows."""
    facts = {"moment": stretch.moment.isoformat(), "base": str(stretch.base.id), "events": events}
    return json.dumps(facts, sort_keys=True)


def _gone(batch: Batch) -> str | None:
    """Return a condition, never null, for rows that a TRUNCATE removed or that have expired since."""
    # rows without an order key are older than any event
    older = f"coalesce({ORDER_COLUMN}, '') < '{batch.truncate_order}'" if batch.truncate_order else None
    below = batch.commit.floor.condition(c.name for c in batch.columns) if batch.commit.floor else None
    return " OR ".join(filter(None, (older, below))) or None


def _past(stretch: Stretch, name: str) -> PastBranch:
    return PastBranch(Branch(stretch.table, name), stretch.position, micros(stretch.moment))


def _publish(stretch: Stretch, name: str, staged: Staged, note: str, shown: Shown) -> Snapshot:
    """Commit the staged files, and set branch and tag in the same metadata commit."""
    table = stretch.table.refresh()
    moment = stretch.moment.isoformat()
    summary = {names.JOB: JOB, names.READ_THROUGH: moment, names.MOMENT: note}
    changes = RowChanges(staged.data_files, staged.delete_files, summary=summary)
    max_age_ms = int(shown.keep_for * 1000)

    def show(transaction: Any) -> None:
        tip = int(transaction.table().snapshot(name).snapshotId())
        refs = {shown.branch: Ref(tip, "branch", max_age_ms), shown.tag: Ref(tip, "tag", max_age_ms)}
        put_refs(table, refs, owner=transaction)

    carrier = carrier_of(table.ancestors_of(stretch.base))
    fence = PositionFence(carrier.text if carrier else None)
    return commit_to_branch(table, changes, fence, name, show, shown.branch)


def read(
    spark: SparkSession, table: str, *, moment: str | datetime, history_table: str, quarantine_table: str | None = None
) -> DataFrame:
    """Read a table as its source had it at a moment.

    A temporary branch protects what is read from expiry; nothing else is written.

    :param table: catalog, namespace and name, such as ``lake.shop.orders``.
    :param moment: at the source, with a time zone; includes what the source had committed by then.
    :param history_table: of the table, in the same catalog, such as ``lake.shop.orders_history``.
    :param quarantine_table: namespace and name, if ingestion uses one.
    :return: the table's current columns, checkpointed by Spark.
    :raises InputError: the moment cannot be restored with certainty; the message says why.
    """
    catalog, _, name = table.partition(".")
    of_history, _, history = history_table.partition(".")
    if of_history != catalog:
        raise InputError(
            f"The history table {history_table} is not in the table's catalog.",
            table=name,
            hint=f"Name it with its catalog, as {catalog}.namespace.name.",
        )
    text = moment.isoformat() if isinstance(moment, datetime) else moment
    at = parse_moment(text, "moment").astimezone(UTC)
    stretch = stretch_to(IcebergTable(spark, catalog, name), history, at, names.quarantine_of(name, quarantine_table))
    batch, _ = batch_of(stretch)
    with rows_of(stretch, batch) as rows:
        return rows.localCheckpoint()
