"""Type the events of a database's log, decoded to texts, and fold them like messages, in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import Target
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.change import Rows
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.fold import Grouping, LeftOutError, can_fold, grouping
from lakecdc.ingest.engine.layout import order_parts, without_void
from lakecdc.ingest.engine.log_layout import LogLayout
from lakecdc.ingest.engine.packed import PackedLayout, PackedRows, gathered
from lakecdc.ingest.engine.packing import rows_of_cells
from lakecdc.ingest.engine.tasks import Buffering, buffered
from lakecdc.ingest.formats.text_columns import JUDGED
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import slices

_LEFT_OUT = "an update of a key leaves untouched values out"
# rows typed in one step, and their bytes
_ROWS, _BYTES = 65_536, 32 * 1024 * 1024
# events and bytes per task that types, and per task that folds; a task needs about six times the memory
_TYPED_AT_ONCE = 200_000, 64 * 1024 * 1024
_FOLDED_AT_ONCE = 250_000, 64 * 1024 * 1024


@dataclass(frozen=True)
class LogTask:
    """Cells of decoded events in, a packed frame out."""

    layout: LogLayout
    buffering: Buffering

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Type and fold until the input ends or an event cannot be folded."""
        settle()
        cells = slices(packing.all_of(batches), _BYTES, _ROWS)
        tables = (self.layout.typed(table, self.buffering.epoch) for table in cells)
        yield from buffered(self.buffering, (b for table in tables for b in table.to_batches()), self._folded)

    def _folded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events to fold.

        :raises LeftOutError: they cannot be folded.
        """
        folded = without_void(batch, self.layout.void_below)
        if pc.any(pc.and_(folded.column("moved"), folded.column("open").is_valid())).as_py():
            raise LeftOutError(_LEFT_OUT)
        return folded


@dataclass(frozen=True)
class LogSize:
    """Size of a table's part of a round: number of events and approximate bytes."""

    events: int
    bytes: int

    def tasks(self, events: int, size: int) -> int:
        """Return the number of tasks, given the events and bytes of one task."""
        return max(1, -(-self.events // events), -(-self.bytes // size))


@dataclass(frozen=True)
class LogRows:
    """Changes of a table in a round, or rows of its full load.

    :param rows: rows that fit.
    :param misfits: events with values that do not fit, as a change frame with
        :data:`~lakecdc.ingest.formats.text_columns.JUDGED`; None if there are none, or they are detected later.
    """

    rows: Rows
    misfits: DataFrame | None = None
    events: int = 0


@dataclass(frozen=True)
class LogFold:
    """Type and fold a table's events in a round.

    :param cells: the table's cells, with the columns ``cell`` and ``packed``.
    :param partition_by: the target's partition transforms in SQL.
    :param cached: collects the frames that Spark keeps until the batch is done.
    """

    cells: DataFrame
    layout: LogLayout
    size: LogSize
    target: Target
    partition_by: Sequence[str]
    epoch: int
    cached: list[DataFrame]

    def run(self) -> LogRows:
        """Type the events, and fold them if requested and possible."""
        layout, target = self.layout, self.target
        folds = layout.folds and bool(layout.key) and can_fold(target)
        rows = self._gathered(folds=folds, every=not folds or bool(target.history_table))
        facts = rows.facts
        if folds and (facts.left_out or (facts.leaves_out and facts.rejected)):
            # an event of another key, or a rejected one, may have the values that an event leaves out
            rows.release()
            return self._unfolded()
        misfits = self._misfits(rows) if facts.rejected else None
        moves = self._moves(misfits) if misfits is not None and not layout.moves_left_out else frozenset()
        if moves:
            rows.release()
            return replace(self, layout=replace(layout, moves_left_out=moves)).run()
        self.cached.extend(rows.cached)
        void_below = layout.void_below if rows.folded else None
        return LogRows(replace(rows, void_below=void_below), misfits, facts.row_events)

    def _gathered(self, *, folds: bool, every: bool) -> PackedRows:
        layout, tasks, cells = self.layout, self.size.tasks(*_TYPED_AT_ONCE), self.cells
        alone, groups, names = tasks == 1, self._grouping, list(layout.types)
        if not alone:
            # distributed in the same way if they are read again
            cells = cells.repartitionById(tasks, (F.col("cell") % tasks).cast("int"))
        buffering = Buffering(groups if folds else None, self.epoch, names, every, alone, is_log=True)
        typed = run_tasks(cells.select("packed"), LogTask(layout, buffering), packing.SCHEMA)
        packed = PackedLayout(layout.types, layout.key, groups, self.epoch)
        return gathered(typed, packed, buffering, lambda: self._unfolded().rows)

    @property
    def _grouping(self) -> Grouping:
        parallelism = self.cells.sparkSession.sparkContext.defaultParallelism
        shares = max(self.size.tasks(*_FOLDED_AT_ONCE), min(self.size.tasks(*_TYPED_AT_ONCE), parallelism))
        key, types = self.layout.key, self.layout.types
        return grouping(self.partition_by, key, [types[name] for name in key], shares)

    def _unfolded(self) -> LogRows:
        return replace(self, layout=replace(self.layout, folds=False)).run()

    def _misfits(self, rows: PackedRows) -> DataFrame:
        cells = rows.cells.select("rejected").where("rejected IS NOT NULL")
        events = run_tasks(cells, rows_of_cells, self.layout.misfit_schema)
        return events.select(
            *("op", "key", "row", "open", "old_key"),
            F.col("rejected.order").alias("order"),
            F.timestamp_micros("time_us").alias("source_time"),
            *JUDGED,
        )

    @staticmethod
    def _moves(misfits: DataFrame) -> frozenset[tuple[int, int]]:
        """Return positions and ordinals of key updates among events; the deletes of the old keys belong to them."""
        moved = misfits.where("old_key IS NOT NULL").select("order").collect()
        parts = [order_parts(row["order"]) for row in moved]
        return frozenset((part["pos"], part["ord"]) for part in parts)
