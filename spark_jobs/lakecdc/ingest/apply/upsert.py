"""Mode ``upsert``: the table has the source's current rows; the cost of changes does not depend on its size.

New rows become data files, their keys equality deletes for every live partition spec, both in one ``RowDelta`` with
the source positions in its summary, behind the fence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyspark.sql import functions as F

from lakecdc.iceberg import definition
from lakecdc.iceberg.fence import DeleteReach, KnownRows, KnownState, PositionFence
from lakecdc.iceberg.file_io import discard_files
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest import tombstones
from lakecdc.ingest.apply import full_load
from lakecdc.ingest.apply import packed as packing
from lakecdc.ingest.apply.proof import prove, prove_by_bounds
from lakecdc.ingest.apply.publish import Applied, Commit, OvertakenError, Staged, publish
from lakecdc.ingest.apply.rows import cluster_rows, stage_images
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.ingest.floor import known_floor
from lakecdc.ingest.fold import may_have_been
from lakecdc.ingest.tables import check_partitioning
from lakecdc.key_search.match import refuse_table
from lakecdc.key_search.row_ids import RowIds
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import log_position
from lakecdc.writer.frame import stage_frame

log = logging.getLogger(__name__)

# rewrites that move rows are rare, and slower than staging a batch
_STAGINGS = 3


def upsert(table: IcebergTable, batch: Batch, position: Position, started_from: str | None) -> Applied:
    """Commit one folded batch.

    The batch is staged again if rows moved to another partition spec meanwhile, if others have committed since the
    checks, or if they may have added rows that the batch was proven not to replace.

    :param batch: its rows are ``key, op, row, order, source_time``, one per key; without rows, only the position is
        committed.
    :param position: the source's position after the batch.
    :param started_from: summary text of the position the batch started from, for the fence.
    :raises ConflictError: another run has changed the positions.
    :raises InputError: a partition spec does not derive from the key.
    """
    return anew_if_overtaken(_upsert, table, batch, position, started_from)


def known_state(batch: Batch, *, truncates: bool) -> KnownState | None:
    """Return the state of the rows that the batch relies on, for its fence.

    :param truncates: the commit removes rows first.
    """
    return replace(batch.commit.state, truncated=truncates) if batch.commit.state else None


def anew_if_overtaken(
    attempt: Callable[[IcebergTable, Batch, Position, str | None], Applied],
    table: IcebergTable,
    batch: Batch,
    position: Position,
    started_from: str | None,
) -> Applied:
    """Stage and commit a batch; retry a few times if others invalidate its files before the commit."""
    for _ in range(_STAGINGS - 1):
        try:
            return attempt(table, batch, position, started_from)
        except OvertakenError:
            log.info("%s: the table has changed meanwhile, the batch is staged again", table.name)
            table.refresh()
    return attempt(table, batch, position, started_from)


def _upsert(table: IcebergTable, batch: Batch, position: Position, started_from: str | None) -> Applied:
    live, current = definition.live_specs(table), definition.current_spec_id(table)
    check_partitioning(table, batch.key, sorted({*live, current}))
    if batch.target.deletes == "resolved":
        refuse_table(table)
    # with the current spec, to which a rewrite may be moving rows: the rewrite can commit if the deletes reach them
    # there
    specs = sorted({*live, current}) if live else []

    proof = prove(table, batch, position)

    # a full load deletes nothing
    deletes = not batch.full_load and batch.rows is not None
    resolves = deletes and batch.target.deletes == "resolved"
    keeps_ids = resolves and table.format_version >= 3

    def stage(staged: Staged) -> None:
        if batch.full_load:
            full_load.stage(table, batch, staged)
        elif batch.rows is not None:
            # merging has looked up the table's keys
            staged.proven = proof.refusal is None or batch.target.merge is not None
            _stage(table, batch, batch.rows, staged, specs, with_rows=not keeps_ids)
            if not resolves and (known := _drop_deletes_of_new_keys(table, batch.rows, staged)):
                fence.known_rows = known
            if staged.delete_files and not staged.proven and log_position(position) is not None:
                staged.deletes_kept = proof.refusal

    # without live files there is no search, but rows that others add meanwhile must still be found
    reach = DeleteReach(table, specs) if deletes and not (resolves and specs) else None
    fence = PositionFence(started_from, reach, known_floor(table, batch))
    truncates = batch.commit.replaces or batch.truncate_order is not None
    fence.known_rows, fence.state = proof.known_rows, known_state(batch, truncates=truncates)
    note = {names.DELETE_SPECS: ",".join(map(str, specs))} if reach and specs else {}
    note |= proof.note
    commit = Commit(position, fence, batch.truncate_order, batch.commit.replaces, note, resolves=resolves)
    if resolves:
        commit = replace(commit, places=batch.commit.places)
    if keeps_ids:
        commit = replace(commit, stage_rows=partial(_stage_rows, table, batch, specs))
    return publish(table, stage, commit, batch)


def _drop_deletes_of_new_keys(table: IcebergTable, rows: Rows, staged: Staged) -> KnownRows | None:
    """Discard the staged deletes if the batch only inserts and no data file can have its keys.

    :return: state that the commit then relies on; None if the deletes stay.
    """
    stats = rows.stats
    # deletes of proven batches are of keys that the table has
    if not staged.delete_files or staged.proven or stats is None or any(stats.events.get(op) for op in "ud"):
        return None
    if known := prove_by_bounds(table, staged.delete_files):
        discard_files(table, [str(file.location()) for file in staged.delete_files])
        staged.delete_files, staged.deletes_left_out = [], rows.keys
    return known


def _stage(
    table: IcebergTable, batch: Batch, rows: Rows, staged: Staged, spec_ids: list[int], *, with_rows: bool
) -> None:
    """Stage deletes and rows, after committing deletes to remember; tasks write all in the same pass."""
    packed, memory = packing.writable(table, batch, rows, spec_ids), None
    # merging has remembered its deletes
    remembers = not batch.source.in_order and batch.target.merge is None
    if packed is None:
        if with_rows:
            staged.data_files += stage_images(table, batch, rows.frame, rows.keys)
        _stage_keys(table, batch, rows, staged, spec_ids)
    else:
        memory = tombstones.memory_of(table, rows, batch.key) if remembers else None
        outputs = packing.OutputParts(rows=with_rows, keys=bool(spec_ids), memory=memory)
        remembered = packing.stage(table, batch, packed, staged, outputs)
        if packed.completed is not None and with_rows:
            staged.data_files += stage_images(table, batch, packed.completed, packed.facts.open)
        if memory is not None:
            tombstones.append_remembered(memory, remembered)
    if memory is None and rows.stats is not None and remembers:
        tombstones.remember(table, rows, batch.key)
    if staged.proven and spec_ids:
        # each deleted key is in the files of every spec
        deleted = sum(int(file.recordCount()) for file in staged.delete_files) // len(spec_ids)
        staged.deletes_left_out = rows.keys - deleted


def _stage_rows(table: IcebergTable, batch: Batch, spec_ids: list[int], staged: Staged, ids: RowIds | None) -> None:
    """Stage rows that keep the ids of the rows they replace."""
    rows = batch.rows
    assert rows is not None
    packed = packing.writable(table, batch, rows, spec_ids)
    if packed is None:
        staged.data_files += stage_images(table, batch, rows.frame, rows.keys, ids)
        return
    packing.stage(table, batch, packed, staged, packing.OutputParts(keys=False, ids=ids))
    if packed.completed is not None:
        staged.data_files += stage_images(table, batch, packed.completed, packed.facts.open, ids)


def stage_changes(table: IcebergTable, batch: Batch, rows: Rows, staged: Staged, spec_ids: list[int]) -> None:
    """Write folded rows as data files, and their keys as equality deletes of some partition specs, uncommitted."""
    staged.data_files += stage_images(table, batch, rows.frame, rows.keys)
    _stage_keys(table, batch, rows, staged, spec_ids)


def _stage_keys(table: IcebergTable, batch: Batch, rows: Rows, staged: Staged, spec_ids: list[int]) -> None:
    types = definition.spark_types(table)
    keys = (rows.frame.where(may_have_been()) if staged.proven else rows.frame).select(
        *[F.col("key")[k].cast(types[k]).alias(k) for k in batch.key]
    )
    for spec_id in spec_ids:
        ordered = cluster_rows(table, keys, batch.key, spec_id, rows.keys)
        staged.delete_files += stage_frame(table, ordered, batch.key, spec_id)
