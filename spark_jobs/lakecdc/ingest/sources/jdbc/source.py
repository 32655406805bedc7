"""Read tables by a cursor: the rows of a data interval, or those above the highest known value.

A row's order is its cursor value, so intervals may be read again and in any order: rows of the table with a higher
value stay. Reading is not a snapshot: a row that changes meanwhile moves to a later interval and is read there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError, concerning
from lakecdc.contract.sources.jdbc import Interval, JdbcSource, missing_interval
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.engine.records import RowReading, decode_cells
from lakecdc.ingest.sources.jdbc.tables import Database, SourceTable, Stretch
from lakecdc.ingest.sources.message_batches import BatchSource, table_batch
from lakecdc.metadata.positions import Position

log = logging.getLogger(__name__)

_EPOCH = 1
#: half-open range of times that was read, as text of fixed width
Range = tuple[str, str]
#: start of an unbounded range
BEGINNING = ""
# a snapshot summary has no room for more
_MOST_RANGES = 40


class Jdbc(BatchSource):
    """The tables of a database, as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, JdbcSource)
        super().__init__(spark, spec)
        self.source = spec.source
        self._positions: dict[str, Position | None] = {}
        self._recorded: dict[str, Position] = {}
        self._database: Database | None = None

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Connect to the database and leave out tables that were fed in another way.

        :raises SourceUnavailableError: it cannot be reached.
        """
        self._database = Database(self.spark, self.source)
        self._positions, self._recorded = dict(positions), dict(recorded)
        for table, position in positions.items():
            try:
                with concerning(table):
                    if position:
                        check_cursor(position, self.source)
            except InputError as error:
                self.failed(table, error)
                self.refused[table] = error

    def rounds(self) -> Iterator[list[Batch]]:
        """Yield one round, after one that repeats the stretch of an interrupted run."""
        targets = [t for t in self.spec.targets if t.table in self._positions]
        if self._recorded:
            yield self.round_of((t for t in targets if t.table in self._recorded), self._batch)
            self._recorded = {}
        yield self.round_of(targets, self._batch)

    def applied(self, table: str, position: Position) -> None:
        self._positions[table] = position

    def _batch(self, target: Target) -> Batch:
        assert self._database is not None
        known = self.known(target)
        table = SourceTable(self._database, target, known.types)
        position = self._positions.get(target.table)
        if position:
            check_kind(table, position)
        stretch, after = self._by_time(table, position) if table.is_time else self._by_number(table, position)
        bounds = table.bounds(stretch)
        facts: dict[str, object] = {"read_from": after.offsets["last"][0], "read_to": after.offsets["last"][1]}
        if position is None:
            facts["first_run_reads"] = self._first_reading(stretch, after)
            log.info("%s was never fed: this run reads %s", target.table, facts["first_run_reads"])
        key = table.key()
        if bounds is None and stretch.low is not None:
            return Batch(target, key, table.columns, None, after, source=SourceFacts(in_order=False, facts=facts))
        # rows with a key are unique
        cells = table.cells(table.shares(stretch, bounds), numbered=not key)
        decoded = decode_cells(cells, target, known, row_reading(self.source), key)
        return replace(table_batch(target, decoded, after, facts), key=key)

    def _first_reading(self, stretch: Stretch, after: Position) -> str:
        """Describe the rows that the first run of a table reads."""
        cursor, (low, high) = self.source.cursor_column, after.offsets["last"]
        if stretch.low is not None:
            return f"only rows whose {cursor} is between {low} and {high}; set full_load to read older rows too"
        is_cut = "ranges" in after.offsets and stretch.high is not None
        return f"all rows whose {cursor} is before {high}" if is_cut else "all rows"

    def _by_time(self, table: SourceTable, position: Position | None) -> tuple[Stretch, Position]:
        last = self._last(table)
        if last:
            low, high = last
        elif self.source.full_load and position is None:
            end = self.source.interval.moments[1] if self.source.interval else datetime.now(UTC)
            low, high = BEGINNING, text(end)
        else:
            if self.source.interval is None:
                raise missing_interval(table.target.table, self.source.cursor_column)
            low, high = map(text, self.source.interval.moments)
            self._check_dates(table, self.source.interval)
        ranges = with_range(position.offsets["ranges"] if position else [], (low, high))
        through = read_through(ranges, position.read_through if position else None, (low, high))
        # a full load without an end has no upper bound
        endless = low == BEGINNING and self.source.interval is None and not last
        lag = timedelta(seconds=self.source.lag_seconds)
        begin = None if low == BEGINNING else _micros(datetime.fromisoformat(low) - lag)
        stretch = Stretch(begin, None if endless else _micros(datetime.fromisoformat(high)))
        offsets = {"ranges": [list(r) for r in ranges], "last": [low, high]}
        return stretch, Position("jdbc", self.source.cursor_column, offsets, through)

    def _by_number(self, table: SourceTable, position: Position | None) -> tuple[Stretch, Position]:
        if self.source.interval is not None:
            raise InputError(
                f"The cursor column {self.source.cursor_column!r} is an integer, and source.interval is a time.",
                hint="Set the interval to null: a run then continues from the highest known value.",
            )
        if position is None and not self.source.full_load:
            raise InputError(
                "The table was never fed, so there is no highest value to continue from.",
                hint='Set "full_load": true to read it from its beginning.',
            )
        last = self._last(table)
        if last:
            low, high = last
        else:
            low = position.offsets["through"] if position else None
            bounds = table.bounds(Stretch(None if low is None else low + 1, None))
            high = bounds[1] if bounds else low
        begin = None if low is None else low + 1 - self.source.lag_values
        offsets = {"through": high, "last": [low, high]}
        stretch = Stretch(begin, None if high is None else high + 1)
        return stretch, Position(
            "jdbc", self.source.cursor_column, offsets, position.read_through if position else None
        )

    def _last(self, table: SourceTable) -> list[Any] | None:
        """Return the stretch that an interrupted run has read."""
        recorded = self._recorded.get(table.target.table)
        return recorded.offsets["last"] if recorded else None

    def _check_dates(self, table: SourceTable, interval: Interval) -> None:
        """Refuse an interval that does not begin and end at midnight."""
        zone = ZoneInfo(self.source.cursor_zone)
        begin, end = (moment.astimezone(zone) for moment in interval.moments)
        cut = [m for m in (begin, end) if (m.hour, m.minute, m.second, m.microsecond) != (0, 0, 0, 0)]
        if table.kind == "date" and cut:
            raise InputError(
                f"The cursor column {self.source.cursor_column!r} is a date, and the interval [{begin.isoformat()}, "
                f"{end.isoformat()}) does not begin and end at midnight ({self.source.cursor_zone}).",
                hint="Schedule whole days, or set cursor_zone.",
            )


def check_cursor(position: Position, source: JdbcSource) -> None:
    """Refuse a position of another source or cursor."""
    if (position.source, position.identity) != ("jdbc", source.cursor_column):
        raise InputError(
            f"The table was fed from a source of type {position.source!r} ({position.identity}), not 'jdbc' with the "
            f"cursor {source.cursor_column!r}.",
            hint="Load a new table: orders of different cursors cannot be compared.",
        )


def check_kind(table: SourceTable, position: Position) -> None:
    """Refuse a cursor that changed from a time to a number, or from a number to a time."""
    if ("ranges" in position.offsets) != table.is_time:
        raise InputError(
            f"The cursor column {table.column!r} is now of type {table.kind}, but the table was fed by "
            f"{'an integer' if table.is_time else 'a time'}.",
            hint="Load a new table: orders of different cursors cannot be compared.",
        )


def row_reading(source: JdbcSource) -> RowReading:
    return RowReading(_EPOCH, source.cursor_column, times=True, zone=source.cursor_zone, lowest_without=True)


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def text(moment: datetime) -> str:
    """Format a time as text that sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def with_range(ranges: Sequence[Sequence[str]], new: Range) -> list[Range]:
    """Add a range and merge ranges that touch; drop the oldest ones if there are too many."""
    merged: list[Range] = []
    for low, high in sorted([*((r[0], r[1]) for r in ranges), new]):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged[-_MOST_RANGES:]


def read_through(ranges: Sequence[Range], before: str | None, new: Range) -> str:
    """Return the time up to which everything since the first reading has been read.

    An interval that leaves a gap does not move it, nor does an old one.

    :param ranges: including the new one.
    :param before: the previous value; None for a table that was never fed.
    """
    if before is None:
        return new[1]
    return next((high for low, high in ranges if low <= before <= high), before)


open_source = Jdbc
