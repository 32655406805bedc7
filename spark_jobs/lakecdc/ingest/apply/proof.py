"""Prove that the rows a batch inserts are not in the table, so they need no delete (law 9).

Bounds of data files prove it for keys outside of them. For a log, the proof relies on a fact about the table: that it
has no key that its source lacks at the table's position. A full load establishes this, every batch of the log preserves
it, and each commit records it in its summary, with an upper bound of the rows' order keys. A snapshot with a position
but without the record ends it until the next full load; so does a later snapshot that may have added rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.expressions import BOUNDED, rows_within
from lakecdc.iceberg.fence import KnownRows
from lakecdc.iceberg.jvm import java_message, listed
from lakecdc.metadata import names
from lakecdc.metadata.positions import Carrier, Position, carried_before, current_position
from lakecdc.model.order import RANK_READ, order_key
from lakecdc.model.positions import log_position

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.ingest.batch import Batch

log = logging.getLogger(__name__)

_UNKNOWN = "there is no full load, or another source than its log may have added rows since"


@dataclass(frozen=True)
class Standing:
    """Facts about a table's rows from its snapshots.

    :param snapshot_id: the nearest ancestor of the head with a position; None without one.
    :param position: the table's position, including quiet stretches.
    :param rows_below: upper bound of the rows' order keys, recorded in that snapshot; None without one.
    :param others: rows may have been added since.
    :param empty: the table has never had a row.
    :param filled: the last snapshot in which ingestion filled columns, without adding rows; None if there is none.
    """

    snapshot_id: int | None = None
    position: Position | None = None
    rows_below: str | None = None
    others: bool = False
    empty: bool = False
    filled: int | None = None

    @classmethod
    def of(cls, ancestors: Iterable[Snapshot], properties: Mapping[str, str]) -> Standing:
        """Create from the ancestors of a head, newest first, if metadata still has them."""
        others, last = False, None
        filled = int(properties[names.FILLED]) if names.FILLED in properties else None
        for last in ancestors:
            text = last.summary.get(names.POSITIONS)
            if text is not None:
                carrier = Carrier(last.id, text, carried_before(last.summary))
                position = current_position(carrier, properties)
                return cls(last.id, position, last.summary.get(names.ROWS_BELOW), others, filled=filled)
            others = others or (last.may_add_rows and last.id != filled)
        return cls(others=others, empty=not others and (last is None or last.parent_id is None), filled=filled)


@dataclass(frozen=True)
class Proof:
    """The proof for a batch, from the table's state before it.

    :param refusal: why the table may have rows that the batch inserts; None if it cannot.
    :param note: summary entries for the commit.
    :param known_rows: state that the proof relies on, for the fence.
    """

    refusal: str | None
    note: Mapping[str, str]
    known_rows: KnownRows | None


def prove(table: IcebergTable, batch: Batch, position: Position) -> Proof:
    """Check whether the rows that a batch inserts are new to the table, and what to record after it.

    :param position: the source's position after the batch.
    """
    if batch.source.unproven is not None:
        return Proof(batch.source.unproven, {}, None)
    standing = Standing.of(table.ancestors(), table.properties)
    refusal, below = refusal_of_proof(standing, batch, position), rows_below(standing, batch, position)
    if below is None:
        return Proof(refusal, {}, None)
    known = None if batch.commit.replaces else KnownRows(standing.snapshot_id, standing.filled)
    return Proof(refusal, {names.ROWS_BELOW: below}, known)


def prove_by_bounds(table: IcebergTable, deletes: Sequence[Any]) -> KnownRows | None:
    """Return the state that proves that no data file has a key between the lowest and highest deleted one, or None.

    So batches that insert increasing keys need no deletes, for any source.

    :param deletes: staged equality deletes of one key, Java ``DeleteFile`` objects.
    """
    standing, key = Standing.of(table.ancestors(), table.properties), set(listed(deletes[0].equalityFieldIds()))
    is_bounded = any(field.id in key and field.type in BOUNDED for field in table.fields)
    if standing.others or standing.snapshot_id is None or not is_bounded:
        return None
    try:
        near = table.java.newScan().filter(rows_within(table, None, deletes)).planFiles()
        with closing(near):
            return None if near.iterator().hasNext() else KnownRows(standing.snapshot_id, standing.filled)
    except Exception as error:
        # an erasure or expiry may have removed files of the table; the commit detects it
        log.info("%s: its data files cannot be listed: %s", table.name, java_message(error))
        return None


def refusal_of_proof(standing: Standing, batch: Batch, position: Position) -> str | None:
    """Return which condition of the proof fails; None if the table has no row that the batch inserts.

    :param position: the source's position after the batch.
    """
    if why := refusal_to_know(standing, batch, position):
        return why
    at, first = log_position(standing.position), batch.commit.first_order
    if batch.full_load or at is None or at.load or at.ahead or batch.source.overtaken_below:
        return "the log is not past the end of the full load"
    if first is None or standing.rows_below is None or first <= standing.rows_below:
        return "an event is not above the highest order key of the table's rows"
    return None


def rows_below(standing: Standing, batch: Batch, position: Position) -> str | None:
    """Return an upper bound of the table's order keys after the batch; None if its rows are unknown."""
    at = log_position(position)
    if at is None or refusal_to_know(standing, batch, position):
        return None
    before = None if batch.commit.replaces else standing.rows_below
    read = order_key(at.epoch, max(at.number, at.loaded), rank=RANK_READ)
    return max(filter(None, (before, position.high_order, read)))


def refusal_to_know(standing: Standing, batch: Batch, position: Position) -> str | None:
    """Return why the table may have rows that its source lacks after the batch, or None."""
    if batch.source.unproven:
        return batch.source.unproven
    if batch.commit.floor is not None:
        return "old rows of the table have expired"
    if why := _refusal_of_target(batch.target):
        return why
    if batch.rejected is not None and not batch.full_load:
        return "events of the batch are in quarantine"
    if batch.commit.replaces:
        return None
    if standing.others:
        return "others may have added rows since the last batch"
    if standing.snapshot_id is None:
        return None if batch.full_load and standing.empty else _UNKNOWN
    before = standing.position
    if before is None or (before.source, before.identity) != (position.source, position.identity):
        return "the table's position belongs to another server"
    return _UNKNOWN if standing.rows_below is None else None


def _refusal_of_target(target: Target) -> str | None:
    """Return the setting by which the table's rows differ from those of one source table, or None."""
    settings = {
        "source_tables feeds the table from several": target.source_tables,
        "fold_case is set": target.fold_case,
        "merge is set": target.merge,
        "clean.filter leaves rows out": target.clean and target.clean.filter,
        f"on_truncate is {target.on_truncate!r}": target.on_truncate != "apply",
    }
    return next((what for what, is_set in settings.items() if is_set), None)
