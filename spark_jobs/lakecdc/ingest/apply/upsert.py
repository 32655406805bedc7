"""Mode ``upsert``: the table holds the source's current rows; changes cost the same however large it is.

New rows become data files, their keys equality deletes for every live partition spec, both in one ``RowDelta`` with
the source positions in its summary, behind the fence.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.iceberg import definition
from lakecdc.iceberg.fence import DeleteReach, PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes
from lakecdc.ingest import tombstones
from lakecdc.ingest.apply import full_load
from lakecdc.ingest.apply import packed as packing
from lakecdc.ingest.apply.publish import Applied, Commit, OvertakenError, Staged, publish
from lakecdc.ingest.apply.rows import clustered, stage_images
from lakecdc.ingest.floor import known_floor
from lakecdc.ingest.tables import check_partitioning
from lakecdc.metadata import names

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.change import TableBatch
    from lakecdc.ingest.formats.native import Packed
    from lakecdc.metadata.positions import Position

log = logging.getLogger(__name__)

# rewrites that move rows are rare, and each takes longer than staging a batch
_STAGINGS = 3


def upsert(
    table: IcebergTable,
    batch: TableBatch,
    rows: DataFrame | None,
    keys: int,
    position: Position,
    started_from: str | None,
) -> Applied:
    """Commit one folded batch; staged anew if rows have moved to another partition spec meanwhile, or if others have
    committed since the table was checked with the batch.

    :param rows: ``key, op, row, order, source_time``, one row per key; None for a commit of the position alone.
    :param keys: number of rows, to size the write.
    :param position: where the source stands after the batch.
    :param started_from: summary text of the position the batch started from, for the fence.
    :raises ConflictError: another run has moved the positions.
    :raises InputError: a partition spec does not derive from the key.
    """
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

    attempts = Retrying(
        retry=retry_if_exception_type(OvertakenError),
        stop=stop_after_attempt(_STAGINGS),
        before_sleep=lambda _: _refresh(table),
        reraise=True,
    )
    return attempts(_upsert, table, batch, rows, keys, position, started_from)


def _refresh(table: IcebergTable) -> None:
    log.info("%s: the table has changed meanwhile, the batch is staged anew", table.name)
    table.refresh()


def _upsert(
    table: IcebergTable,
    batch: TableBatch,
    rows: DataFrame | None,
    keys: int,
    position: Position,
    started_from: str | None,
) -> Applied:
    live, current = definition.live_specs(table), definition.current_spec_id(table)
    check_partitioning(table, batch.key, sorted({*live, current}))
    # with the current one, to which a rewrite may be moving rows: it can commit if the deletes reach them there
    specs = sorted({*live, current}) if live else []

    def stage(staged: Staged) -> None:
        packed = packing.untouched(batch, rows)
        if packed is not None:
            _stage_packed(table, batch, packed, staged, specs, keys)
        elif batch.full_load:
            full_load.stage(table, batch, rows, staged)
        elif rows is not None:
            stage_changes(table, batch, rows, staged, specs, keys)

    # a full load deletes nothing
    deletes = not batch.full_load and rows is not None
    fence = PositionFence(started_from, DeleteReach(table, specs) if deletes else None, known_floor(table, batch))
    note = {names.DELETE_SPECS: ",".join(map(str, specs))} if deletes and specs else {}
    return publish(table, stage, Commit(position, fence, batch.truncate_order, batch.replaces, note), batch)


def _stage_packed(
    table: IcebergTable, batch: TableBatch, packed: Packed, staged: Staged, spec_ids: list[int], keys: int
) -> None:
    """Rows and keys, and in the same pass the deletes to be remembered, which are committed first."""
    memory = None
    if packing.can_be_written(table, batch, packed, spec_ids):
        memory = None if batch.in_order else tombstones.memory_of(table, packed, batch.key)
        remembered = packing.stage(table, batch, packed, staged, deletes=bool(spec_ids), memory=memory)
        if packed.completed is not None:
            staged.data_files += stage_images(table, batch, packed.completed, packed.facts.open)
        if memory is not None:
            tombstones.append_remembered(memory, remembered)
    else:
        stage_changes(table, batch, packed.changes, staged, spec_ids, keys)
    if memory is None and not batch.in_order:
        tombstones.remember_packed(table, packed, batch.key)


def stage_changes(
    table: IcebergTable, batch: TableBatch, rows: DataFrame, staged: Staged, spec_ids: list[int], keys: int
) -> None:
    """Write folded rows as data files, and their keys as equality deletes, uncommitted.

    :param rows: see :func:`upsert`.
    :param staged: takes up the files.
    :param spec_ids: partition specs to write the deletes for.
    :param keys: number of rows.
    """
    staged.data_files += stage_images(table, batch, rows, keys)
    staged.delete_files += _stage_deletes(table, batch, rows, keys, spec_ids)


def _stage_deletes(
    table: IcebergTable, batch: TableBatch, rows: DataFrame, keys: int, spec_ids: list[int]
) -> list[Any]:
    keyed = rows.select(*[F.col("key")[k].alias(k) for k in batch.key])
    files: list[Any] = []
    for spec_id in spec_ids:
        files += stage_equality_deletes(table, clustered(table, keyed, batch.key, spec_id, keys), batch.key, spec_id)
    return files
