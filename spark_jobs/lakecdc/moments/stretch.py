"""Decide whether a moment of a table's source can be restored, and from which snapshot and events.

The snapshot contains no event from after the moment. The events to add are in the history table, after the state that
belongs to the snapshot; they include late events. A moment with possible gaps is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.target import TIME_COLUMN
from lakecdc.iceberg.definition import merge_of, refuse_merged, refuse_several_feeds
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of, count_rows, open_if_there
from lakecdc.ingest.api import Parking, settled_rounds, unread_partitions
from lakecdc.maintain.rollback import named_history, state_beside
from lakecdc.maintain.time_ranges import time_of
from lakecdc.metadata import names
from lakecdc.metadata.floor import read_floor
from lakecdc.metadata.positions import Position, carried_before, current_position, decode, idle_position, read_side_of

_LOST = "The events of that time are not known."
_LATER = "Restore a later moment, or read one of these snapshots."
_AROUND = "Restore a moment from before or after that, or read one of these snapshots."
#: SQL of an event without a source time; Debezium writes 0 for that
UNTIMED = f"({TIME_COLUMN} IS NULL OR {TIME_COLUMN} = timestamp_micros(0))"


@dataclass(frozen=True)
class Stretch:
    """A snapshot and the events to add to it for one moment of a table.

    :param moment: in UTC.
    :param base: the newest snapshot without an event from after the moment.
    :param since: the snapshot of the history table with the events of ``base``; ``until`` is the newest one.
    :param truncated: order key of the last TRUNCATE that emptied the table; None if there was none.
    """

    table: IcebergTable
    history: IcebergTable
    moment: datetime
    base: Snapshot
    position: Position
    since: Snapshot
    until: Snapshot
    truncated: str | None


def stretch_to(table: IcebergTable, history_name: str | None, moment: datetime, quarantine: str) -> Stretch:
    """Return the stretch of a moment of a table, in UTC; raise InputError unless it can be restored with certainty."""
    if merge_of(table) is None:
        refuse_merged(table, "it follows its history table, and moments of that are not kept")
    refuse_several_feeds(table, "a moment of one source is not a moment of the others")
    carrier = carrier_of(table.refresh().ancestors())
    position = current_position(carrier, table.properties)
    if carrier is None or position is None or not table.identifier_columns:
        raise InputError(
            "It is not a table of current rows written by ingestion, so moments of its source are not known.",
            table=table.name,
            hint="Remove it from the tables.",
        )
    history = named_history(table, history_name)
    if history is None:
        raise InputError(
            f"It has no history table, so only its own snapshots can be read. {_nearest(table, moment)}",
            table=table.name,
            hint="Name its history table in options.history_tables, or read one of these snapshots.",
        )
    _refuse_unread(table, position, moment, is_quiet=bool(idle_position(table.properties, carrier)))
    _refuse_quarantined(table, moment, quarantine)
    past = _Past(table, history, moment)
    past.check()
    until = history.head()
    assert until is not None
    return Stretch(table, history, moment, past.base, past.position, past.since, until, position.truncate_order)


def micros(moment: datetime) -> Column:
    return F.timestamp_micros(F.lit(time_of(moment)))


class _Past:
    """Snapshots of a table and its history table since the last snapshot without events from after a moment."""

    def __init__(self, table: IcebergTable, history: IcebergTable, moment: datetime) -> None:
        self._table, self._history, self._moment, self._untimed = table, history.refresh(), moment, 0
        later: list[Snapshot] = []
        for snapshot in table.ancestors():
            state = self._state_beside(snapshot)
            if state is not None:
                break
            later.insert(0, snapshot)
        else:
            if self._untimed:
                raise untimed(table, history, moment, self._untimed)
            raise self._refusal("The table begins later, or its earlier snapshots have expired.", _LATER)
        self.since, self._carrier = state, snapshot
        self.position = decode(snapshot.summary[names.POSITIONS])
        unchanged = [snapshot]
        while later and later[0].is_maintenance and names.MOMENT not in later[0].summary:
            unchanged.append(later.pop(0))
        self.base, self._later = unchanged[-1], later

    def _state_beside(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the history table's state for a snapshot, or None if either has an event from after the moment."""
        position = _position(snapshot)
        if position is None or position.read_through is None or _read_through(position) > self._moment:
            return None
        state = state_beside(self._history, self._table, list(self._table.ancestors_of(snapshot)))
        if state is None:
            raise self._refusal(
                f"The history table {self._history.name} does not go back to snapshot {snapshot.id}.", _LATER
            )
        return None if self._is_too_new(state) else state

    def _is_too_new(self, history: Snapshot) -> bool:
        """Check whether a snapshot of the history table has an event that is or may be from after the moment."""
        moment = time_of(self._moment)
        later = self._history.read(history.id, where=f"{TIME_COLUMN} > timestamp_micros({moment})")
        # events written before the moment are from before it
        may_be_later = history.timestamp_ms * 1000 > moment and later.isEmpty()
        self._untimed = self._history.read(history.id, where=UNTIMED).count() if may_be_later else 0
        return bool(self._untimed) or not later.isEmpty()

    def check(self) -> None:
        # check up to the batch that read past the moment; later batches matter only for late events
        passed = next((n for n, each in enumerate(self._later, 1) if _is_past(each, self._moment)), len(self._later))
        stretch = self._later[:passed]
        self._refuse_foreign(stretch)
        for position in filter(None, map(_position, (self._carrier, *stretch))):
            self._refuse_position(position)
        loads = self._loads()
        if any(each in stretch for each in loads):
            raise self._refusal(
                f"It was fully reloaded after {self.position.read_through}, up to which its source is known. {_LOST}",
                _AROUND,
            )
        floor = read_floor(self._history.properties, self._history.name)
        if floor is not None and floor.below > _read_through(self.position):
            raise self._refusal(
                f"Events from before {floor.below.isoformat()} have been removed from the history table "
                f"{self._history.name}. {_LOST}",
                _LATER,
            )

    def _refuse_position(self, position: Position) -> None:
        if position.read_through is None or "loaded" in position.offsets:
            raise self._refusal(
                "A full load was not complete then, and it had read rows newer than its log position.", _LATER
            )
        if _source(position) != _source(self.position):
            raise self._refusal(f"Another source has fed it since {self.position.read_through}. {_LOST}", _AROUND)

    def _refuse_foreign(self, stretch: Sequence[Snapshot]) -> None:
        own_down_to = None
        for snapshot in reversed(stretch):
            if str(snapshot.id) == own_down_to:
                own_down_to = None
            own_down_to = snapshot.summary.get(names.BRANCHED_FROM, own_down_to)
            if own_down_to is None and not _is_ours(snapshot):
                raise self._refusal(f"A writer other than ingestion modified it in snapshot {snapshot.id}.", _AROUND)

    def _loads(self) -> list[Snapshot]:
        """Return the snapshots since the base that the history table records as full loads of all rows."""
        notes = self._notes()
        loads: list[Snapshot] = []
        before = self._carrier
        for snapshot in (each for each in self._later if _position(each)):
            full_loads = [notes[place] for place in (str(before.id), *carried_before(before.summary)) if place in notes]
            if not full_loads:
                raise self._refusal(
                    f"The history table {self._history.name} lacks the batch of snapshot {snapshot.id}, or its "
                    "snapshots have expired.",
                    "Restore a moment from after that, or read one of these snapshots.",
                )
            loads += [snapshot] if any(full_loads) else []
            before = snapshot
        return loads

    def _notes(self) -> dict[str, bool]:
        """Return whether the batch was a full load of all rows, by the snapshot that it was applied to."""
        notes: dict[str, bool] = {}
        for snapshot in self._history.ancestors():
            if snapshot.id == self.since.id:
                break
            note = read_side_of(snapshot.summary)
            if note is None and not _is_ours(snapshot) and int(snapshot.summary.get("added-records", 0)):
                raise self._refusal(
                    f"A writer other than ingestion modified the history table {self._history.name} in snapshot "
                    f"{snapshot.id}.",
                    "Read one of these snapshots.",
                )
            if note is not None and note.table == self._table.uuid:
                after = str(note.after)
                notes[after] = notes.get(after, False) or note.full_load
        return notes

    def _refusal(self, what: str, hint: str) -> InputError:
        return _refusal(self._table, self._moment, what, hint)


def untimed(table: IcebergTable, history: IcebergTable, moment: datetime, count: int) -> InputError:
    """Create the error for events without a source time, which may be from before or after the moment."""
    what = (
        f"{count} events in its history table {history.name} have no source time, so they may be from before the "
        "moment or from after it."
    )
    return _refusal(table, moment, what, "Restore a moment from after their ingestion, or read one of these snapshots.")


def of_no_table(table: IcebergTable, history: IcebergTable, moment: datetime, count: int) -> InputError:
    """Create the error for events of before the history table named their source tables."""
    what = f"{count} events in its history table {history.name} name no source table, which the table's groups need."
    return _refusal(table, moment, what, "Restore a moment from after their ingestion, or read one of these snapshots.")


def _refusal(table: IcebergTable, moment: datetime, what: str, hint: str) -> InputError:
    message = f"The moment {moment.isoformat()} cannot be restored. {what} {_nearest(table, moment)}"
    return InputError(message, table=table.name, hint=hint)


def _refuse_unread(table: IcebergTable, position: Position, moment: datetime, *, is_quiet: bool) -> None:
    """Refuse a moment unless every partition of the source is known to have been read past it."""
    text, hint = moment.isoformat(), "Run ingestion past the moment, then run again."
    if position.read_through is None or _read_through(position) <= moment:
        through = position.read_through or "no moment yet"
        rounds = Parking(table.spark, table.catalog).load([table.name])[0].get(table.name, [])
        parked = len(rounds) - len(settled_rounds(rounds, position))
        raise InputError(
            f"Its source has been read only through {through}, not past {text}"
            f"{f', and {parked} rounds of its log are parked' if parked else ''}.",
            table=table.name,
            hint="Fix the failing ingestion, let it apply the rounds, then run again." if parked else hint,
        )
    # read_through is the newest event of any partition
    behind = [] if is_quiet else unread_partitions(position, moment)
    if behind:
        raise InputError(
            f"Its source is not known to have been read past {text}: no later event arrived from "
            f"{', '.join(behind[:10])}.",
            table=table.name,
            hint="Run ingestion until it finds nothing new in the topics, then run again.",
        )


def _refuse_quarantined(table: IcebergTable, moment: datetime, name: str) -> None:
    messages = open_if_there(table.spark, table.catalog, name)
    where = "target = :target AND coalesce(source_time <= timestamp_micros(:moment), true)"
    values = {"target": table.name, "moment": time_of(moment)}
    if messages and (count := count_rows(messages, where, values)):
        raise InputError(
            f"{count} of its quarantined messages may be from before {moment.isoformat()}.",
            table=table.name,
            hint="Run replay_quarantine, or dismiss them with clean_side_tables, then run again.",
        )


def _nearest(table: IcebergTable, moment: datetime) -> str:
    before = after = None
    for snapshot in table.ancestors():
        position = _position(snapshot)
        if position is None or position.read_through is None:
            continue
        if _read_through(position) <= moment:
            before = before or f"snapshot {snapshot.id}, read through {position.read_through}"
        else:
            after = f"snapshot {snapshot.id}, read through {position.read_through}"
    near = "; ".join(filter(None, (before, after)))
    return f"Nearest to it: {near}." if near else "None of its snapshots records how far its source was read."


def _position(snapshot: Snapshot) -> Position | None:
    text = snapshot.summary.get(names.POSITIONS)
    return decode(text) if text is not None else None


def _read_through(position: Position) -> datetime:
    return parse_moment(position.read_through or "", names.READ_THROUGH)


def _is_past(snapshot: Snapshot, moment: datetime) -> bool:
    position = _position(snapshot)
    return position is not None and position.read_through is not None and _read_through(position) > moment


def _source(position: Position) -> tuple[object, ...]:
    return position.source, position.identity, position.offsets.get("epoch")


def _is_ours(snapshot: Snapshot) -> bool:
    return names.JOB in snapshot.summary or snapshot.operation == "replace"
