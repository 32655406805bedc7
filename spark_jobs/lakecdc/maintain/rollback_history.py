"""Which snapshot of a history table goes with one of its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.table import MAIN, carrier_of, open_if_there
from lakecdc.metadata.positions import carried_before
from lakecdc.metadata.side_of import read_side_of

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot


@dataclass(frozen=True)
class _State:
    """A snapshot of the history table with all batches that the table has, and no other.

    :param behind: how many snapshots the table is ahead of the last batch; fewer is nearer.
    """

    snapshot: Snapshot
    behind: int


def named_history(table: IcebergTable, name: str | None) -> IcebergTable | None:
    """The history table beside a table.

    :param name: of the history table; None if there is none.
    :raises InputError: there is no such table.
    """
    if name is None:
        return None
    history = open_if_there(table.spark, table.catalog, name)
    if history is None:
        raise InputError("There is no such history table.", table=name, hint="Correct options.history_tables.")
    return history


def state_beside(history: IcebergTable, table: IcebergTable, kept: Sequence[Snapshot]) -> Snapshot | None:
    """The snapshot of a history table that goes with a snapshot of its table.

    Each batch is written to the history table first, with a note of where the table stood before
    (``lakecdc.ingest.apply.history_table``). It is one of the table's batches if that place lies before the last one.

    :param kept: the wanted snapshot of the table and its ancestors, newest first.
    :return: None if it has none such, or it has expired.
    :raises InputError: the history table is another table's.
    """
    carrier = carrier_of(kept)
    places = {place: number for number, each in reversed([*enumerate(kept)]) for place in _ids(each)}
    last = places[str(carrier.snapshot_id)] if carrier else -1
    tags = [name for name, ref in sorted(read_refs(history).items()) if ref.kind == "tag"]
    # where it was set back before, what goes with a later snapshot of the table is kept by a tag alone
    found = [state for ref in (MAIN, *tags) if (state := _state(history, table, ref, (places, last)))]
    return min(found, key=lambda state: state.behind).snapshot if found else None


def _state(history: IcebergTable, table: IcebergTable, ref: str, places: tuple[dict[str, int], int]) -> _State | None:
    numbers, last = places
    wanted = history.head(ref)
    for snapshot, after in _batches(history, table, ref):
        behind = len(numbers) if after is None else numbers.get(after, len(numbers))
        gone = after is not None and table.snapshot(int(after)) is None
        is_of_the_table = behind > last >= 0 and (after is None or after in numbers or gone)
        if wanted and is_of_the_table:
            return _State(wanted, behind)
        wanted = history.snapshot(snapshot.parent_id) if snapshot.parent_id is not None else None
    return None


def _batches(history: IcebergTable, table: IcebergTable, ref: str) -> Iterator[tuple[Snapshot, str | None]]:
    """Snapshots that batches were written in, newest first, and where the table stood before each."""
    for snapshot in history.ancestors(ref):
        note = read_side_of(snapshot.summary)
        if note is None:
            continue
        if note.table != table.uuid:
            raise InputError(f"It is not the history table of {table.name}.", table=history.name)
        yield snapshot, note.after


def _ids(snapshot: Snapshot) -> tuple[str, ...]:
    """How history tables may call a snapshot of their table."""
    return str(snapshot.id), *carried_before(snapshot.summary)
