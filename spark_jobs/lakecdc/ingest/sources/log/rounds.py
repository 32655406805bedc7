"""Rounds of a database's log: one task reads a round, and every table selects its events.

The events are packed into few binary cells, each of one table (``engine.packing``), which Spark keeps on disk.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import LakecdcError
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.log import LogSize
from lakecdc.ingest.engine.packing import cells_of_rows, rows_of_cells
from lakecdc.ingest.sources.log.summary import EVENTS, Summary
from lakecdc.model.positions import LogPosition
from lakecdc.runtime.worker import settle

#: columns of a round: number of the table and of the cell; the last row has only the summary
SCHEMA = "relation bigint, cell int, summary string, packed binary"
# set while a round is read for the first time
_FIRST = "lakecdc.first-read"


S = TypeVar("S", bound=Summary[Any])


@dataclass(frozen=True)
class LogEnd:
    """Where a round ends.

    :param time: source time before which every change is before that place.
    """

    at: LogPosition
    time: datetime


@dataclass
class Round(Generic[S]):
    """One round of the log, on the executors' disks until it is released.

    :param cells: of :data:`SCHEMA`; None if the round was parked.
    :param parked: the decoded events otherwise.
    :param at_log_end: it reaches the end that the log had when the run started.
    """

    summary: S
    end: LogEnd
    cells: DataFrame | None = None
    parked: DataFrame | None = None
    at_log_end: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def release(self) -> None:
        if self.cells is not None:
            self.cells.unpersist()

    def events(self, relation: int) -> dict[str, int]:
        """Return how many events of each kind a table has."""
        return self.summary.events.get(relation, {})

    def size(self, relation: int) -> LogSize:
        """Return the size of one table's part of the round."""
        events = sum(self.events(relation).values())
        return LogSize(events, events * self.summary.event_bytes)

    def cells_of(self, relation: int) -> DataFrame:
        """Return the cells of one table, with their numbers."""
        if self.parked is not None:
            return run_tasks(self.parked, cells_of_rows, "cell int, packed binary")
        assert self.cells is not None
        return self.cells.where(self.cells["relation"] == relation)

    def of_table(self, relation: int) -> DataFrame:
        """Return the decoded events of a table in a round that was read, rows of :data:`EVENTS`."""
        rows = run_tasks(self.cells_of(relation).select("packed"), rows_of_cells, EVENTS)
        return rows.where(F.col("commit_lsn") < self.summary.end)


@dataclass(frozen=True)
class RoundTask(ABC):
    """The task that reads a round, once, for the single row that it receives.

    :param where: address of the server.
    :param limits: where it ends, with ``seconds`` among them; 0 is no limit.
    """

    where: Any
    limits: Any

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        # repeated after the loss of an executor, it must not end before the known end of the round
        context = TaskContext.get()
        is_first = context is None or context.getLocalProperty(_FIRST) is not None
        task = self if is_first else replace(self, limits=replace(self.limits, seconds=0))
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from task.rows()

    @abstractmethod
    def rows(self) -> Iterator[pa.RecordBatch]:
        """Read and decode; see :func:`packed`."""

    @abstractmethod
    def explain(self, error: Exception) -> LakecdcError:
        """Return our error for the task's failure."""


def packed(batches: Iterable[pa.RecordBatch], summary: Summary[Any]) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a round.

    :param batches: decoded events, with the number of their table as ``relation``.
    :param summary: complete once all batches are consumed.
    """
    numbers: dict[int, int] = {}
    for batch in batches:
        table = pa.Table.from_batches([batch])
        relations = pc.unique(batch.column("relation")).to_pylist()
        for relation in relations:
            own = table.filter(pc.equal(table["relation"], relation)) if len(relations) > 1 else table
            for cell in packing.cells(own):
                numbers[relation] = numbers.get(relation, -1) + 1
                yield _row(relation, numbers[relation], None, cell)
    yield _row(None, None, json.dumps(summary.to_json()), None)


def _row(relation: int | None, number: int | None, summary: str | None, cell: pa.Buffer | None) -> pa.RecordBatch:
    arrays = [pa.array([relation], pa.int64()), pa.array([number], pa.int32()), pa.array([summary], pa.string())]
    return pa.RecordBatch.from_arrays([*arrays, packing.binary(cell)], ["relation", "cell", "summary", "packed"])


def read(spark: SparkSession, task: RoundTask, summary: type[S]) -> tuple[S, DataFrame]:
    """Read a round in one task, and return its summary and its cells.

    :raises LakecdcError: the task fails.
    """
    from pyspark.errors import PySparkException

    cells = run_tasks(spark.range(0, 1, 1, 1), task, SCHEMA).persist(StorageLevel.DISK_ONLY)
    spark.sparkContext.setLocalProperty(_FIRST, "true")
    try:
        last = cells.where("summary IS NOT NULL").select("summary").first()
    except Exception as error:
        cells.unpersist()
        if isinstance(error, PySparkException):
            raise task.explain(error) from error
        raise
    finally:
        spark.sparkContext.setLocalProperty(_FIRST, None)  # type: ignore[arg-type]
    assert last is not None
    return summary.from_json(json.loads(last["summary"])), cells
