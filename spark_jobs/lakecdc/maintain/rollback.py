"""Roll tables back to an earlier snapshot, and forward again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.contract.expiring import RollbackTablesOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.lease import await_free
from lakecdc.iceberg.refs import Ref, change_refs, named_snapshot, read_refs, ref_age_ms
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot, carrier_of, open_if_there
from lakecdc.maintain.reports import dry_run, empty, ends, nothing
from lakecdc.metadata import names
from lakecdc.metadata.consumers import read_consumers
from lakecdc.metadata.positions import Carrier, Position, carried_before, read_side_of


def rollback_tables(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Set a table and its history table to another snapshot, and keep the previous state under a tag.

    The table moves first: if only the history table moved, ingestion would leave a gap in it.

    :raises InputError: the snapshot does not exist, expired rows would return, or the history table belongs to another
        table.
    :raises ConflictError: another run holds a lease, or another writer committed meanwhile; nothing was changed, unless
        its message says so.
    """
    options = spec.options_as(RollbackTablesOptions)
    if not options.to:
        raise InputError(
            "No snapshot to roll back to is given.",
            table=table.name,
            hint="Set options.to to the id of a snapshot, a tag, a branch, or an ISO-8601 time.",
        )
    history = named_history(table, options.history_tables.get(table.name))
    # before the head is read, because a lease holder may still move it
    if not options.dry_run:
        for moved in filter(None, (table, history)):
            await_free(moved)
    head = table.refresh().head()
    if head is None:
        return empty(table)
    destination = named_snapshot(table, options.to)
    lineage = list(table.ancestors_of(destination))
    remaining = {each.id for each in lineage}
    passed = [each for each in table.ancestors() if each.id not in remaining]
    expiries = [each for each in passed if each.summary.get(names.JOB) == "expire_partitions"]
    if expiries and not options.expired_rows:
        raise InputError(
            f"Rows that expire_partitions removed in snapshot {expiries[-1].id} would return.",
            table=table.name,
            hint="Name a later snapshot, or set options.expired_rows to have them until the job runs again.",
        )
    moves = [(table, head, destination)]
    if history and (beside := history.head()):
        moves.append((history, beside, _state_beside(history, table, lineage)))
    moves = [(moved, now, then) for moved, now, then in moves if now.id != then.id]
    carrier, consumers = carrier_of(lineage), read_consumers(table.properties)
    metrics: dict[str, Any] = {
        "snapshots_undone": len(passed),
        "rows_before": head.rows,
        "rows_after": destination.rows,
        "next_ingestion": _next_ingestion(carrier),
        "consumers_stopped": sorted(name for name, each in consumers.items() if each.snapshot_id not in remaining),
        "tables_moved": [moved.name for moved, _, _ in moves],
    }
    if not moves:
        return nothing(table, "the table is already at that snapshot", head, **metrics)
    if options.dry_run:
        return dry_run(table, head, **metrics)
    metrics["kept_as"] = f"before-rollback-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    for moved, now, then in moves:
        _set(moved, now, then, metrics["kept_as"], options.keep_for)
    return TableReport(table.name, "done", **ends(head, destination), metrics=metrics)


def _state_beside(history: IcebergTable, table: IcebergTable, lineage: Sequence[Snapshot]) -> Snapshot:
    state = state_beside(history, table, lineage)
    if state is None:
        raise InputError(
            f"The history table {history.name} has no snapshot for the requested one.",
            table=table.name,
            hint="It has expired, or all events came later. Remove the table from options.history_tables; the history "
            "table then keeps the undone events, and gets duplicates of events that are read again.",
        )
    return state


def _set(table: IcebergTable, now: Snapshot, then: Snapshot, tag: str, keep_for: float) -> None:
    """Move ``main``, keep its head under a tag, and move the positions tag, in one commit."""
    previous = Ref(now.id, "tag", ref_age_ms(now, keep_for))
    refs: dict[str, Ref | None] = {MAIN: Ref(then.id, "branch"), tag: previous}
    carrier = carrier_of(table.ancestors_of(then))
    if carrier:
        refs[names.POSITIONS_TAG] = Ref(carrier.snapshot_id, "tag")
    elif names.POSITIONS_TAG in read_refs(table):
        refs[names.POSITIONS_TAG] = None
    change_refs(table, refs, decided_at=now.id)


def _next_ingestion(carrier: Carrier | None) -> str:
    if carrier is None:
        return "starts over: the snapshot has no source position"
    places = (each.position for each in carrier.feeds)
    return f"continues from {' and '.join(map(_place, places))}; later changes are applied again if the source has them"


def _place(position: Position) -> str:
    through = f", which is the source as of {position.read_through}" if position.read_through else ""
    return f"{json.dumps(position.offsets, sort_keys=True)} of {position.source}{through}"


def named_history(table: IcebergTable, name: str | None) -> IcebergTable | None:
    """Open the history table of a table, if a name is given; raise InputError if it does not exist."""
    if name is None:
        return None
    history = open_if_there(table.spark, table.catalog, name)
    if history is None:
        raise InputError("The history table does not exist.", table=name, hint="Correct options.history_tables.")
    return history


def state_beside(history: IcebergTable, table: IcebergTable, lineage: Sequence[Snapshot]) -> Snapshot | None:
    """Return the snapshot of a history table that matches a snapshot of its table, unless it has expired.

    Each batch is first written to the history table, with a note of the table's snapshot before it
    (``lakecdc.ingest.apply.history_table``). The table includes the batch if that snapshot is older than the table's
    last batch.

    :param lineage: the requested snapshot of the table and its ancestors, newest first.
    :raises InputError: the history table belongs to another table.
    """
    # the one job that feeds the history table
    newest, fed = carrier_of(lineage), carrier_of(history.ancestors())
    carrier = newest.of(fed.position.feed if fed else "") if newest else None
    # history tables may refer to a snapshot of their table by any of these ids
    ids = [(str(each.id), *carried_before(each.summary)) for each in lineage]
    places = {place: number for number, names in reversed([*enumerate(ids)]) for place in names}
    last = places.get(str(carrier.snapshot_id), len(places)) if carrier else -1
    tags = [name for name, ref in sorted(read_refs(history).items()) if ref.kind == "tag"]
    # after an earlier rollback, only tags keep states of later table snapshots
    states = [state for ref in (MAIN, *tags) if (state := _state(history, table, ref, (places, last)))]
    return min(states, key=lambda state: state[0])[1] if states else None


def _state(
    history: IcebergTable, table: IcebergTable, ref: str, places: tuple[dict[str, int], int]
) -> tuple[int, Snapshot] | None:
    """Return the number of table snapshots since the last batch, and the newest snapshot with exactly its batches."""
    numbers, last = places
    candidate = history.head(ref)
    for snapshot in history.ancestors(ref):
        note = read_side_of(snapshot.summary)
        if note is None:
            continue
        if note.table != table.uuid:
            raise InputError(f"It is not the history table of {table.name}.", table=history.name)
        after = note.after
        behind = len(numbers) if after is None else numbers.get(after, len(numbers))
        has_expired = after is not None and table.snapshot(int(after)) is None
        is_of_the_table = behind > last >= 0 and (after is None or after in numbers or has_expired)
        if candidate and is_of_the_table:
            return behind, candidate
        candidate = history.snapshot(snapshot.parent_id) if snapshot.parent_id is not None else None
    return None
