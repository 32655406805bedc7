"""A moment as a branch of its table, with the missing events committed at once, or as rows to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.branch import Branch
from lakecdc.iceberg.commit import RowChanges, commit_to_branch
from lakecdc.iceberg.definition import current_spec_id, live_spec_ids
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.refs import Ref, put_refs, read_refs
from lakecdc.iceberg.staging import discard
from lakecdc.iceberg.table import carrier_of
from lakecdc.ingest import tombstones, truncate
from lakecdc.ingest.apply.merge import merge_into
from lakecdc.ingest.apply.publish import Staged
from lakecdc.ingest.apply.rows import table_columns
from lakecdc.ingest.apply.upsert import stage_changes
from lakecdc.ingest.change import Rows
from lakecdc.ingest.cleaning import cleaned, completed
from lakecdc.ingest.completion import complete
from lakecdc.ingest.floor import held_against
from lakecdc.ingest.fold import fold, stats
from lakecdc.ingest.lookup import drop_older
from lakecdc.ingest.tables import columns_outside_key
from lakecdc.metadata import names
from lakecdc.model.order import void_sql
from lakecdc.moments.stretch import micros
from lakecdc.runtime.failpoints import reach
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import Snapshot
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.fold import FoldStats
    from lakecdc.moments.stretch import Stretch

JOB = "restore_moment"


@dataclass(frozen=True)
class Shown:
    """Branch that shows a moment.

    :param branch: its name.
    :param keep_for: seconds to keep it.
    """

    branch: str
    keep_for: float

    @property
    def tag(self) -> str:
        """Return the name of the tag, which stays in place when users write to the branch."""
        return f"{self.branch}-as-restored"


def restore(stretch: Stretch, batch: Batch, note: str, shown: Shown) -> Snapshot:
    """Create branch and tag.

    :param batch: the events missing from the base.
    :param note: describes the moment in the summary.
    :return: the snapshot of both.
    :raises InputError: an event omits a value that is recorded nowhere.
    :raises ConflictError: expiry removed the base meanwhile.
    """
    batch = _cleaned_batch(stretch, batch)
    with scratch.branch(stretch.table, stretch.base, names.MOMENT_BRANCH_PREFIX) as name:
        past = Branch(stretch.table, name)
        if gone := _gone(batch):
            past.spark.sql(f"DELETE FROM {scratch.sql_name(past, name)} WHERE {gone}")
            past.refresh()
        staged = Staged()
        try:
            with _newest(stretch, past, batch) as newest:
                if newest is not None:
                    _apply(past, batch, name, newest, staged)
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
    """Read the rows of the moment with the table's columns; valid inside the context.

    :param batch: the events missing from the base.
    :raises InputError: an event omits a value that is recorded nowhere.
    """
    batch = _cleaned_batch(stretch, batch)
    # the branch keeps the base from expiring
    with scratch.branch(stretch.table, stretch.base, names.MOMENT_BRANCH_PREFIX) as name:
        past = Branch(stretch.table, name)
        gone = _gone(batch)
        rows = past.read(where=f"NOT ({gone})" if gone else "true")
        with _newest(stretch, past, batch) as newest:
            if newest is None:
                yield rows
                return
            columns = [quoted_column(column) for column in rows.columns]
            untouched = rows.join(newest.frame.select("key.*"), list(batch.key), "left_anti").select(*columns)
            yield untouched.unionByName(newest.frame.where("op != 'd'").select(*table_columns(past, batch)))


def restored_before(stretch: Stretch, shown: Shown) -> str | None:
    """Return the note of the moment on the branch, or None if the branch does not exist.

    :raises InputError: the branch shows something else, or was written to since.
    """
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
    """Describe a restored moment for the summary, equally for equal rows.

    :param events: number of events missing from the base.
    """
    facts = {"moment": stretch.moment.isoformat(), "base": str(stretch.base.id), "events": events}
    return json.dumps(facts, sort_keys=True)


def _cleaned_batch(stretch: Stretch, batch: Batch) -> Batch:
    return cleaned(stretch.table.spark, held_against(batch, stretch.table))


def _gone(batch: Batch) -> str | None:
    """Return a condition, never null, for rows that a TRUNCATE removed or that have expired since."""
    # rows without an order key are older than any event
    older = f"coalesce({ORDER_COLUMN}, '') < '{batch.truncate_order}'" if batch.truncate_order else None
    below = batch.commit.floor.condition(c.name for c in batch.columns) if batch.commit.floor else None
    return " OR ".join(filter(None, (older, below))) or None


@contextmanager
def _newest(stretch: Stretch, past: Branch, batch: Batch) -> Iterator[Rows | None]:
    """Fold the events, drop those older than the base, and complete them; yield None if there are none."""
    assert batch.rows is not None
    changes = batch.rows.frame
    if batch.truncate_order:
        changes = changes.where(f"NOT {void_sql('`order`', batch.truncate_order)}")
    folded = fold(changes).persist()
    try:
        measured = stats(folded)
        if not measured.keys:
            yield None
            return
        rows = _newer(stretch, past, batch, folded, measured.low_order)
        if measured.open_keys:
            rows = _whole(rows, batch, past, stretch.position.high_order, measured)
        yield Rows(completed(past.spark, rows, batch, set()), folded=True, keys=measured.keys)
    finally:
        folded.unpersist()


def _apply(past: Branch, batch: Batch, name: str, newest: Rows, staged: Staged) -> None:
    """Apply the events to the branch: with a statement of its own, or as files to commit."""
    specs = sorted(live_spec_ids(past, past.java.snapshot(name)))
    if any(columns_outside_key(past, batch.key, spec) for spec in {*specs, current_spec_id(past)}):
        merge_into(past, scratch.sql_name(past, name), batch, newest)
    else:
        stage_changes(past, batch, newest, staged, specs)


def _newer(stretch: Stretch, past: Branch, batch: Batch, folded: DataFrame, low_order: str | None) -> DataFrame:
    """Drop folded rows older than the base or than a delete before the moment."""
    mark, truncated = stretch.position.high_order, stretch.position.truncate_order
    if mark is None or low_order is None or low_order > mark:
        return folded
    rows, _, _ = drop_older(folded, past, batch.key, mark)
    rows, _ = tombstones.drop_deleted(past, rows, batch.key, mark, truncated, micros(stretch.moment))
    return truncate.drop_emptied(rows, truncated)[0] if truncated else rows


def _whole(rows: DataFrame, batch: Batch, past: Branch, mark: str | None, measured: FoldStats) -> DataFrame:
    """Fill in the unchanged values that the source omitted."""
    rows, _, lost = complete(rows, batch, past, mark, measured.first_order)
    if lost is not None:
        raise InputError(
            f"Cannot restore the moment: the source omitted values of {lost.count()} rows, and neither the history "
            "table nor the table has them.",
            table=past.name,
            hint="Read one of the table's own snapshots.",
        )
    return rows


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
