"""Apply a batch to a branch with a table's past state: no delete is remembered, and no position changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import TIME_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.definition import current_spec_id, live_spec_ids
from lakecdc.ingest.apply.merge import merge_into
from lakecdc.ingest.apply.upsert import stage_changes
from lakecdc.ingest.change import Rows
from lakecdc.ingest.cleaning import completed
from lakecdc.ingest.completion import complete
from lakecdc.ingest.fold import fold, measure_folded, with_late, without_void
from lakecdc.ingest.lookup import look_up
from lakecdc.ingest.merging.combine import Rules
from lakecdc.ingest.merging.contributions import Contributions, without_erased
from lakecdc.ingest.reconciliation import Compared, drop_stale
from lakecdc.ingest.tables import columns_outside_key
from lakecdc.ingest.tombstones import open_remembered
from lakecdc.key_search.match import refusal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.contract.merging import Merge
    from lakecdc.iceberg.table import Branch
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.engine.packed import PackedRows
    from lakecdc.ingest.fold import Stats
    from lakecdc.metadata.positions import Position


@dataclass(frozen=True)
class PastBranch:
    """A branch with a table's past state and position; deletes after ``until`` are ignored."""

    branch: Branch
    position: Position
    until: Column


@contextmanager
def fold_onto_past(past: PastBranch, batch: Batch) -> Iterator[Rows | None]:
    """Fold a cleaned batch, drop rows older than the branch's, and complete the rest; yield None without events.

    :raises InputError: a value that the source omitted is not recorded.
    """
    assert batch.rows is not None
    events, merge = without_void(batch.rows.frame, batch.truncate_order), batch.target.merge
    if merge is not None:
        with _merged(past, batch, with_late(events), merge) as whole:
            cleaned = whole.with_frame(completed(past.branch.spark, whole.frame, batch, set()))
            yield cleaned if whole.keys else None
        return
    folded = fold(events).persist()
    try:
        measured = measure_folded(folded)
        if not measured.keys:
            yield None
            return
        position = past.position
        compared = Compared(position.high_order, measured.low_order, position.truncate_order, until=past.until)
        rows = drop_stale(folded, past.branch, batch.key, compared).frame
        if measured.open_keys:
            rows = _whole(past, batch, rows, measured)
        yield Rows(completed(past.branch.spark, rows, batch, set()), folded=True, keys=measured.keys)
    finally:
        folded.unpersist()


def apply_onto_past(past: PastBranch, batch: Batch, rows: Rows, name: str, staged: Staged) -> None:
    """Apply :func:`fold_onto_past` to the named branch, with a statement or as staged files to commit.

    :param staged: receives rows, and keys as equality deletes, whose positions are searched later.
    """
    branch = past.branch
    specs = sorted(live_spec_ids(branch, branch.java.snapshot(name)))
    outside = any(columns_outside_key(branch, batch.key, spec) for spec in {*specs, current_spec_id(branch)})
    if outside or refusal(branch):
        merge_into(branch, scratch.sql_name(branch, name), batch, rows)
    else:
        stage_changes(branch, batch, rows, staged, specs)


@contextmanager
def _merged(past: PastBranch, batch: Batch, events: DataFrame, merge: Merge) -> Iterator[PackedRows]:
    """Merge events with the branch's rows and remembered deletes, by the rules of the table."""
    branch, key = past.branch, batch.key
    events = without_void(events, past.position.truncate_order)
    mark, feed = past.position.high_order or "", past.position.feed
    events = without_erased(events, branch, key, mark, feed).localCheckpoint()
    contributions = Contributions(branch, Rules(merge, batch.columns, key), events.count())
    with ExitStack() as stack:
        of_events = contributions.of_events(Rows(events))
        stack.callback(of_events.frame.unpersist)
        keys, remembered = contributions.keys_of(of_events), open_remembered(branch)
        stored = look_up(branch, keys, key)
        if batch.commit.floor and (expired := batch.commit.floor.condition(c.name for c in batch.columns)):
            stored = stored.where(f"NOT {expired}")
        together = [of_events.frame, contributions.of_rows(stored, since=batch.truncate_order)]
        if remembered is not None:
            deletes = look_up(remembered, keys, key).where(F.coalesce(F.col(TIME_COLUMN) <= past.until, F.lit(True)))
            together.append(contributions.of_rows(deletes, remembered=True))
        rows = contributions.merged(together, of_events.facts.left_out)
        stack.callback(rows.release)
        if rows.facts.open:
            raise _omitted(branch, rows.facts.open)
        yield rows


def _omitted(branch: Branch, rows: int) -> InputError:
    return InputError(
        f"Cannot restore the moment: the source omitted values of {rows} rows, and neither the history table nor the "
        "table has them.",
        table=branch.name,
        hint="Read one of the table's own snapshots.",
    )


def _whole(past: PastBranch, batch: Batch, rows: DataFrame, measured: Stats) -> DataFrame:
    """Fill in the unchanged values that the source omitted."""
    mark = past.position.high_order
    whole = complete(rows, batch, past.branch, mark, measured.first_order)
    if whole.left_out is not None:
        raise _omitted(past.branch, whole.left_out.count())
    return whole.rows
