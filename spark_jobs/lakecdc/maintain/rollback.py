"""Setting tables back to what they were, and on again."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.contract.options import RollbackTablesOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.lease import await_free
from lakecdc.iceberg.refs import Ref, change_refs, read_refs, ref_age_ms
from lakecdc.iceberg.table import MAIN, carrier_of
from lakecdc.maintain.named_snapshots import named_snapshot
from lakecdc.maintain.rewrite import nothing
from lakecdc.maintain.rollback_history import named_history, state_beside
from lakecdc.metadata import names
from lakecdc.metadata.consumers import read_consumers
from lakecdc.metadata.positions import Carrier

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot


def rollback_tables(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Set a table to another of its snapshots, its history table with it, and keep what they were under a tag.

    The table goes first: after a history table that was set back alone, ingestion would leave a gap in it.

    :raises InputError: no such snapshot, rows that have expired would come back, or the history table is another's.
    :raises ConflictError: another run holds a lease, or another writer has committed meanwhile; nothing was changed,
        unless the reason says so.
    """
    options = spec.options
    assert isinstance(options, RollbackTablesOptions)
    if not options.to:
        raise InputError(
            "Nobody has said what to roll back to.",
            table=table.name,
            hint="Give options.to the id of a snapshot, a tag, a branch, or an ISO-8601 moment.",
        )
    history = named_history(table, options.history_tables.get(table.name))
    # before the head is read: a holder may still move it
    if not options.dry_run:
        for moved in filter(None, (table, history)):
            await_free(moved)
    head = table.refresh().head()
    if head is None:
        return nothing(table, "the table has no snapshot")
    wanted = named_snapshot(table, options.to)
    kept = list(table.ancestors_of(wanted))
    held = {each.id for each in kept}
    passed = [each for each in table.ancestors() if each.id not in held]
    if not options.expired_rows:
        _refuse_expired_rows(table, passed)
    moves = [(table, head, wanted)]
    if history and (beside := history.head()):
        moves.append((history, beside, _state_beside(history, table, kept)))
    moves = [(moved, now, then) for moved, now, then in moves if now.id != then.id]
    carrier = carrier_of(kept)
    metrics: dict[str, Any] = {
        "snapshots_undone": len(passed),
        "rows_before": head.rows,
        "rows_after": wanted.rows,
        "next_ingestion": _next_ingestion(carrier),
        "consumers_stopped": _stopped_consumers(table, held),
        "tables_moved": [moved.name for moved, _, _ in moves],
    }
    if not moves:
        return nothing(table, "the table is at that snapshot already", head, **metrics)
    if options.dry_run:
        return nothing(table, "dry run: nothing was changed", head, **metrics)
    metrics["kept_as"] = f"before-rollback-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    for moved, now, then in moves:
        _set(moved, now, then, metrics["kept_as"], options.keep_for)
    return TableReport(table.name, "done", snapshot_before=str(head.id), snapshot_after=str(wanted.id), metrics=metrics)


def _state_beside(history: IcebergTable, table: IcebergTable, kept: Sequence[Snapshot]) -> Snapshot:
    found = state_beside(history, table, kept)
    if found is None:
        raise InputError(
            f"The history table {history.name} has no snapshot that goes with the wanted one.",
            table=table.name,
            hint="It has expired, or all events came later. Leave the table out of options.history_tables: then the "
            "history table keeps what is undone, and has twice what is read again.",
        )
    return found


def _refuse_expired_rows(table: IcebergTable, passed: Sequence[Snapshot]) -> None:
    expiries = [snapshot for snapshot in passed if snapshot.summary.get(names.JOB) == "expire_partitions"]
    if expiries:
        raise InputError(
            f"Rows that expire_partitions has removed since, in snapshot {expiries[-1].id}, would come back.",
            table=table.name,
            hint="Name a later snapshot, or set options.expired_rows: then they are back until the job runs next.",
        )


def _set(table: IcebergTable, now: Snapshot, then: Snapshot, tag: str, keep_for: float) -> None:
    """Move ``main``, keep its head under a tag, and move the tag of positions, in one commit."""
    kept = Ref(now.id, "tag", ref_age_ms(now, keep_for))
    refs: dict[str, Ref | None] = {MAIN: Ref(then.id, "branch"), tag: kept}
    carrier = carrier_of(table.ancestors_of(then))
    if carrier:
        refs[names.POSITIONS_TAG] = Ref(carrier.snapshot_id, "tag")
    elif names.POSITIONS_TAG in read_refs(table):
        refs[names.POSITIONS_TAG] = None
    change_refs(table, refs, decided_at=now.id)


def _next_ingestion(carrier: Carrier | None) -> str:
    """What ingestion does next, for people."""
    if carrier is None:
        return "begins anew: the snapshot has no source position"
    position = carrier.position
    through = f", which is the source as of {position.read_through}" if position.read_through else ""
    offsets = json.dumps(position.offsets, sort_keys=True)
    return (
        f"goes on from {offsets} of {position.source}{through}; what came since is applied again if the source has it"
    )


def _stopped_consumers(table: IcebergTable, held: Collection[int]) -> list[str]:
    """Consumers that have read what the table holds no longer."""
    return sorted(name for name, each in read_consumers(table.properties).items() if each.snapshot_id not in held)
