"""Matching of history table snapshots with snapshots of their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot, carrier_of, open_if_there
from lakecdc.metadata.positions import carried_before, read_side_of


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
    (``lakecdc.ingest.apply.history_table``). It is one of the table's batches if that snapshot lies before the last
    one.

    :param lineage: the requested snapshot of the table and its ancestors, newest first.
    :raises InputError: the history table belongs to another table.
    """
    carrier = carrier_of(lineage)
    # history tables may refer to a snapshot of their table by any of these ids
    ids = [(str(each.id), *carried_before(each.summary)) for each in lineage]
    places = {place: number for number, names in reversed([*enumerate(ids)]) for place in names}
    last = places[str(carrier.snapshot_id)] if carrier else -1
    tags = [name for name, ref in sorted(read_refs(history).items()) if ref.kind == "tag"]
    # after an earlier rollback, states of later table snapshots are kept only by tags
    states = [state for ref in (MAIN, *tags) if (state := _state(history, table, ref, (places, last)))]
    return min(states, key=lambda state: state[0])[1] if states else None


def _state(
    history: IcebergTable, table: IcebergTable, ref: str, places: tuple[dict[str, int], int]
) -> tuple[int, Snapshot] | None:
    """Return the number of table snapshots since the last batch, and the newest snapshot with exactly its batches."""
    numbers, last = places
    candidate = history.head(ref)
    for snapshot, after in _batches(history, table, ref):
        behind = len(numbers) if after is None else numbers.get(after, len(numbers))
        gone = after is not None and table.snapshot(int(after)) is None
        is_of_the_table = behind > last >= 0 and (after is None or after in numbers or gone)
        if candidate and is_of_the_table:
            return behind, candidate
        candidate = history.snapshot(snapshot.parent_id) if snapshot.parent_id is not None else None
    return None


def _batches(history: IcebergTable, table: IcebergTable, ref: str) -> Iterator[tuple[Snapshot, str | None]]:
    """Yield the snapshots of batches, newest first, with the table's snapshot before each."""
    for snapshot in history.ancestors(ref):
        note = read_side_of(snapshot.summary)
        if note is None:
            continue
        if note.table != table.uuid:
            raise InputError(f"It is not the history table of {table.name}.", table=history.name)
        yield snapshot, note.after
