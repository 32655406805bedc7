"""Plan the tasks that decode a batch, and collect their facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.engine import packing, schemas
from lakecdc.ingest.engine.decoded import Request
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.engine.fold import Grouping, grouping
from lakecdc.ingest.engine.packed import PackedLayout, PackedRows, gathered, unpacked
from lakecdc.ingest.engine.packing import rows_of_cells
from lakecdc.ingest.engine.tasks import Buffering, DecodeTask, Read
from lakecdc.ingest.formats.messages import SCHEMA, Messages, as_they_are
from lakecdc.ingest.formats.values import Field

#: columns of messages in a scan without keys
VALUES = "value string, arrival bigint"
# constant columns of messages without keys
_OF_FILES = {"partition": "0", **dict.fromkeys(("topic", "timestamp", "key", "headers"))}


@dataclass(frozen=True)
class Scan:
    """Messages that the engine's tasks read directly.

    :param read: reads the messages of tasks, by number of the task.
    :param tasks: number of tasks.
    :param groups: number of tasks that fold all messages.
    :param keyed: messages have keys, headers, topics and partitions, not only :data:`VALUES`.
    :param messages: returns the message frame for a frame of such values, with further named columns.
    :param rows: rows that tasks read, instead of their numbers.
    """

    spark: SparkSession
    read: Read
    tasks: int
    groups: int
    keyed: bool
    messages: Callable[..., DataFrame] = as_they_are
    rows: DataFrame | None = None

    @property
    def reads_here(self) -> bool:
        """Check whether this process can read the first messages, too."""
        return not self.keyed and self.rows is None

    def first_values(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the first messages of a scan without keys, read in this process."""
        for batch in self.read([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])]):
            messages = batch.slice(0, count)
            for name, value in _OF_FILES.items():
                messages = messages.append_column(name, pa.array([value] * len(messages), pa.string()))
            yield messages
            count -= len(messages)
            if not count:
                return

    def frame(self) -> DataFrame:
        """Return the message frame."""
        return self.messages(run_tasks(self.input(), self.read, SCHEMA if self.keyed else VALUES))

    def input(self) -> DataFrame:
        """Return the rows that tasks read."""
        return self.spark.range(0, self.tasks, 1, self.tasks) if self.rows is None else self.rows


@dataclass(frozen=True)
class EngineResult:
    """The result of decoding a batch.

    :param rows: the changes, with the facts of the batch.
    :param fields: the table's columns, as encoded in the messages.
    :param schema: columns of the messages' schema; None without one.
    :param aside: message frame of the messages that tasks set aside; None if there are none.
    :param rejected: messages that cannot be applied; None if there are none.
    """

    rows: PackedRows
    fields: tuple[Field, ...] = ()
    schema: tuple[Field, ...] | None = None
    aside: DataFrame | None = None
    rejected: Rejected | None = None

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(place.rpartition("/")[0] for place in self.rows.facts.read_orders)


class SecondPassError(Exception):
    """One pass cannot decode a batch; the message is the reason."""


def decode_at_once(messages: Messages, decoding: Decoding, request: Request) -> EngineResult:
    """Decode a batch in one pass, knowing only its table.

    :param messages: returns the message frame; not called if there is a scan.
    :raises SecondPassError: the batch has messages that a task cannot judge.
    """
    scan = request.known.scan
    rows = _Run(messages, decoding, request, scan, request.folds).rows()
    facts = rows.facts
    reason = _reason(rows, shards=bool(decoding.target.source_tables))
    if reason:
        rows.release()
        raise SecondPassError(reason)
    aside = _set_aside(rows.cells, scan) if facts.aside else None
    schema = schemas.from_json(facts.schemas[0]) if facts.schemas and facts.schemas[0] else None
    names = {f.name for f in schema or decoding.fields} | {decoding.target.source_column}
    fields = tuple(f for f in (decoding.with_schema(schema) if schema else decoding).fields if f.name in names)
    rejected = rows.rejected(*_carried(scan))
    return EngineResult(rows, fields, schema, aside, rejected)


def judge_events(
    messages: DataFrame, decoding: Decoding, request: Request, *, folds: bool, void_below: str | None
) -> EngineResult:
    """Apply or reject every event, after a first pass over the messages.

    :param messages: a message frame; a tombstone that is a delete has an order key in the column ``placed``.
    :param folds: output the last event of each key, if tasks can fold.
    :param void_below: order key of a TRUNCATE; earlier events are not folded.
    """
    rows = _Run(lambda: messages, decoding, request, None, folds, void_below).rows()
    if rows.facts.odd:
        raise ValueError(f"a task cannot decode messages in a second pass: {rows.facts.odd}")
    return EngineResult(rows, decoding.fields, rejected=rows.rejected(*_carried(None)))


@dataclass(frozen=True)
class _Run:
    """Tasks that decode a batch; see :func:`decode_at_once`."""

    messages: Messages
    decoding: Decoding
    request: Request
    scan: Scan | None
    folds: bool
    void_below: str | None = None

    @cached_property
    def _groups(self) -> Grouping:
        scan, key = self.scan, self.decoding.key
        types = {f.name: f.type for f in self.decoding.fields}
        tasks = scan.groups if scan else self.messages().sparkSession.sparkContext.defaultParallelism
        return grouping(self.request.known.partition_by, key, [types[k] for k in key], tasks)

    def rows(self) -> PackedRows:
        """Run the tasks; run them again without a fold if the fold would lose values."""
        rows = self._once(folds=self.folds)
        facts = rows.facts
        # a rejected event may have values that another one leaves out; values filled from a repeated old event would
        # hide the table's newer ones
        hides_values = facts.leaves_out and (facts.rejected or self.request.marks.may_hold(facts.first_orders))
        if self.folds and not facts.odd and (facts.left_out or hides_values):
            rows.release()
            return self._once(folds=False)
        return replace(rows, void_below=self.void_below) if rows.folded else rows

    def _once(self, *, folds: bool) -> PackedRows:
        decoding, scan, marks = self.decoding, self.scan, self.request.marks
        every = bool(decoding.target.history_table) or not folds
        alone = scan is not None and scan.tasks == 1
        groups = self._groups if folds else None
        buffering = Buffering.of(decoding, groups, marks, every=every, alone=alone)
        task = DecodeTask(decoding, scan.read if scan else None, buffering, self.void_below)
        typed = run_tasks(scan.input() if scan else self.messages(), task, packing.SCHEMA)
        # a scan reads one log, or files treated as one
        one_log = scan is not None and not decoding.traits.many_rows
        types = {f.name: f.type for f in decoding.fields}
        layout = PackedLayout(types, decoding.key, self._groups, decoding.reading.epoch, marks, one_log)
        return gathered(typed, layout, buffering, lambda: self._once(folds=False))


def _set_aside(frame: DataFrame, scan: Scan | None) -> DataFrame:
    carried, messages = _carried(scan)
    return messages(run_tasks(frame.select("aside").where("aside IS NOT NULL"), rows_of_cells, carried))


def _carried(scan: Scan | None) -> tuple[str, Callable[..., DataFrame]]:
    """Return the schema of the message columns that tasks keep, and the function that restores messages."""
    return (SCHEMA, as_they_are) if scan is None or scan.keyed else (VALUES, scan.messages)


def _reason(rows: PackedRows, *, shards: bool) -> str | None:
    """Return why the batch needs a second pass, or None."""
    facts = rows.facts
    if facts.odd:
        return facts.odd
    lone = facts.lone
    if not rows.folded and facts.events["x"] and rows.layout.key:
        deletes = F.count_if(F.col("op") == "d").alias("deletes")
        lone = (
            unpacked(rows.cells, rows.layout, "dx")
            .groupBy("key")
            .agg(deletes, F.count_if(F.col("op") == "x").alias("gone"))
            .where("gone > 0 AND deletes = 0")
            .count()
        )
    if lone:
        return "a tombstone without its delete"
    return "events of several source tables" if len(facts.tables) > 1 and not shards else None
