"""Apply a batch to a branch that shows its table's past: no delete is remembered, and no position moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg import scratch
from lakecdc.iceberg.definition import current_spec_id, live_spec_ids
from lakecdc.ingest.apply.merge import merge_into
from lakecdc.ingest.apply.upsert import stage_changes
from lakecdc.ingest.change import Rows
from lakecdc.ingest.cleaning import completed
from lakecdc.ingest.completion import complete
from lakecdc.ingest.fold import fold, stats, without_void
from lakecdc.ingest.reconciliation import Compared, drop_stale
from lakecdc.ingest.tables import columns_outside_key
from lakecdc.key_search.match import refusal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import Branch
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.fold import FoldStats
    from lakecdc.metadata.positions import Position


@dataclass(frozen=True)
class PastBranch:
    """A branch that shows its table's past, with the position then; deletes after ``until`` are ignored."""

    branch: Branch
    position: Position
    until: Column


@contextmanager
def fold_onto_past(past: PastBranch, batch: Batch) -> Iterator[Rows | None]:
    """Fold a cleaned batch, drop rows older than the branch's, and complete the rest; yield None without events.

    :raises InputError: an omitted value is recorded nowhere.
    """
    assert batch.rows is not None
    folded = fold(without_void(batch.rows.frame, batch.truncate_order)).persist()
    try:
        measured = stats(folded)
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

    :param staged: takes rows, and keys as equality deletes, whose positions are to be found.
    """
    branch = past.branch
    specs = sorted(live_spec_ids(branch, branch.java.snapshot(name)))
    outside = any(columns_outside_key(branch, batch.key, spec) for spec in {*specs, current_spec_id(branch)})
    if outside or refusal(branch):
        merge_into(branch, scratch.sql_name(branch, name), batch, rows)
    else:
        stage_changes(branch, batch, rows, staged, specs)


def _whole(past: PastBranch, batch: Batch, rows: DataFrame, measured: FoldStats) -> DataFrame:
    """Fill in the unchanged values that the source omitted."""
    mark = past.position.high_order
    rows, _, lost = complete(rows, batch, past.branch, mark, measured.first_order)
    if lost is not None:
        raise InputError(
            f"Cannot restore the moment: the source omitted values of {lost.count()} rows, and neither the history "
            "table nor the table has them.",
            table=past.branch.name,
            hint="Read one of the table's own snapshots.",
        )
    return rows
