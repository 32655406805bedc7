"""Which module applies a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg import scratch
from lakecdc.ingest import truncate
from lakecdc.ingest.apply import auto, debt
from lakecdc.ingest.apply.merge import merge
from lakecdc.ingest.apply.upsert import upsert

if TYPE_CHECKING:
    from typing import Any

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Applied
    from lakecdc.ingest.batch import Batch
    from lakecdc.metadata.positions import Position

_LATE_TRUNCATE = "a TRUNCATE came late: the rows that it removes share files with newer ones"


def check_debt(table: IcebergTable, batch: Batch, max_delete_files: int) -> None:
    """Stop a table that may take no more equality deletes, before anything of the batch is written.

    :raises ConflictError: naming the job that pays the debt back.
    """
    if batch.target.mode == "upsert" and batch.rows is not None and not batch.full_load:
        debt.check(table, max_delete_files)


def choose(
    table: IcebergTable,
    batch: Batch,
    max_delete_files: int,
    mark: str | None,
) -> tuple[str, dict[str, Any]]:
    """How a batch is to be applied, and what the report says about it.

    :param batch: folded, but for a full load.
    :param mark: highest order key applied to the table.
    :return: ``upsert`` or ``merge``, and metrics.
    :raises InputError: only a MERGE could apply it, and it has to be audited.
    """
    if truncate.is_late(batch, mark):
        if batch.commit.audit is not None:
            raise InputError(
                "A TRUNCATE came after changes that followed it: that takes a MERGE, which cannot be audited.",
                table=table.name,
                hint="Leave out publish for one run, or load the table anew.",
            )
        return "merge", {"mode_chosen": "merge", "mode_reason": _LATE_TRUNCATE}
    if batch.target.mode != "auto":
        return batch.target.mode, {}
    if batch.rows is None or not batch.rows.folded:
        # without rows, or with the first rows of a table, both are the same, but upsert asks for partitions of the key
        return "merge", {}
    choice = auto.choose(table, batch, max_delete_files)
    return choice.mode, {"mode_chosen": choice.mode, "mode_reason": choice.reason}


def apply_rows(
    mode: str,
    table: IcebergTable,
    batch: Batch,
    position: Position,
    started_from: str | None,
) -> Applied:
    """Commit folded rows, or a position alone, to a table of one row per key.

    :param mode: ``upsert`` or ``merge``.
    :param batch: with the rows to apply; without any for a commit of the position alone.
    :param started_from: summary text of the position the batch started from.
    """
    do = upsert if mode == "upsert" else merge
    applied = do(table, batch, position, started_from)
    scratch.remove_stale(table)
    return applied
