"""Decoded rows of a batch, kept by Spark in few binary cells, and their frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.change import Rows
from lakecdc.ingest.engine import facts, packing
from lakecdc.ingest.engine.facts import Facts
from lakecdc.ingest.engine.fold import Grouping
from lakecdc.ingest.engine.layout import COUNTS, OPS, REJECTED_TYPES, change_schema, struct_type
from lakecdc.ingest.engine.packing import UnpackTask
from lakecdc.ingest.engine.tasks import EVERY, Buffering, FoldTask
from lakecdc.ingest.fold import Stats, is_open
from lakecdc.ingest.formats.changes import REJECTED, row_key
from lakecdc.model.order import Marks


@dataclass(frozen=True)
class PackedLayout:
    """Columns, key and order of the rows that tasks pack.

    :param types: Spark SQL types of the columns by name.
    :param marks: marks of the table before the batch; None for a log.
    :param one_log: the messages are from one log, each with one event.
    :param whole_deletes: deletes have rows, too.
    """

    types: Mapping[str, str]
    key: tuple[str, ...]
    grouping: Grouping
    epoch: int
    marks: Marks | None = None
    one_log: bool = False
    whole_deletes: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedRows(Rows):
    """Changes packed by tasks; folded ones are ordered by partition values and keys.

    :param cells: the packed frame, few binary cells that Spark keeps.
    :param completed: rows that replace those with placeholders, ``key, op, row, order, source_time``; None if there are
        none.
    :param cached: frames that Spark keeps.
    """

    cells: DataFrame
    layout: PackedLayout
    facts: Facts
    completed: DataFrame | None = None
    cached: tuple[DataFrame, ...] = ()

    def release(self) -> None:
        for frame in self.cached:
            frame.unpersist()

    @property
    def first_late(self) -> str | None:
        """Return the lowest order key of an event that may have been applied before; None without one."""
        marks = self.layout.marks
        return marks.first_late(self.facts.low_orders) if marks else self.facts.low_order

    @property
    def is_new(self) -> bool:
        """Check by the marks that the table has none of the events, nor a newer state of their rows."""
        marks = self.layout.marks
        return marks is not None and not marks.may_hold(self.facts.first_orders)

    @property
    def is_kept(self) -> bool:
        return True

    def for_table_alone(self, *, may_be_held: bool) -> DataFrame | None:
        """See :meth:`Rows.for_table_alone`: tasks have filled placeholders from events where possible."""
        if not self.folded or (may_be_held and not self.is_new):
            return None
        return self.frame.where(is_open())

    def with_completed(self, completed: DataFrame) -> PackedRows:
        """Replace the rows with placeholders by completed ones."""
        others = self.frame.where(~is_open()).select(*completed.columns)
        return replace(self, frame=others.unionByName(completed), completed=completed)

    def rejected(self, carried: str, messages: Callable[..., DataFrame]) -> Rejected | None:
        """Return the messages that cannot be applied; None if there are none.

        :param carried: Spark SQL schema of the message columns that tasks keep.
        :param messages: returns the message frame of these, with further named columns.
        """
        if not self.facts.rejected:
            return None
        names = {f"k{i}": self.layout.types[name] for i, name in enumerate(self.layout.key)}
        more = f"rejected {struct_type({**REJECTED_TYPES, 'key': struct_type(names)})}"
        cells = self.cells.select("rejected").where("rejected IS NOT NULL")
        of_messages = messages(run_tasks(cells, packing.rows_of_cells, f"{carried}, {more}"), "rejected")
        # a key with a null column identifies no row
        is_whole = reduce(and_, (F.col("rejected.key")[name].isNotNull() for name in names), F.lit(True))
        values = F.when(is_whole, row_key("rejected.key", list(names))) if names else F.lit(None).cast("string")
        of_message = (F.col(f"rejected.{name}" if name in REJECTED_TYPES else name) for name in REJECTED[:-1])
        return Rejected(of_messages.select(*of_message, values.alias("row_key")), self.facts.rejected)

    @property
    def deletes(self) -> DataFrame:
        """Return the deletes, without unpacking the rest."""
        rows = unpacked(self.cells, self.layout, "d")
        return rows.select("key", "op", "row", "order", F.timestamp_micros("time_us").alias("source_time"))

    @property
    def stats(self) -> Stats:
        facts = self.facts
        events, high = {op: facts.events[op] for op in OPS}, facts.high_order
        first = min(facts.first_orders.values(), default=None)
        if not self.folded:
            return Stats(events, self.first_late, high, first_order=first)
        return Stats(events, facts.low_order, high, facts.keys, facts.open, facts.deletes, first, facts.filled)


def gathered(typed: DataFrame, layout: PackedLayout, buffering: Buffering, again: Callable[[], Rows]) -> PackedRows:
    """Run tasks that pack rows, then fold the rows of equal keys; odd batches are not folded.

    :param again: returns the rows of every event by further tasks.
    :return: the folded rows, or the rows of every event if nothing is folded, with the facts of the whole batch.
    """
    cached: list[DataFrame] = []
    parts: list[PackedRows] = []
    if buffering.every:
        cached.append(typed.persist())
        of_events, typed = typed.where(F.col("grp") == EVERY), typed.where(F.col("grp") != EVERY)
        parts.append(packed_rows(of_events, layout, folded=False))
    if buffering.grouping is not None and not any(rows.facts.odd for rows in parts):
        if not buffering.alone:
            task = FoldTask(layout.epoch, tuple(layout.types))
            typed = run_tasks(typed.repartitionById(layout.grouping.tasks, "grp"), task, packing.SCHEMA)
        cached.append(typed.persist())
        unfolded = partial(parts.__getitem__, 0) if parts else cache(again)
        parts.append(replace(packed_rows(typed, layout, folded=True), unfolded=unfolded))
    return replace(parts[-1], cached=tuple(cached))


def packed_rows(cells: DataFrame, layout: PackedLayout, *, folded: bool) -> PackedRows:
    """Return the rows of a packed frame, which Spark keeps, with their facts."""
    merged = facts.merged(facts.from_json(row[0]) for row in cells.select("facts").collect() if row[0])
    changes = unpacked(cells, layout, OPS)
    topic = F.nullif(F.regexp_extract("partition", "^(.+)/", 1), F.lit(""))
    late = _late(layout.marks.partitions if layout.marks else None)
    frame = changes.select(
        *("op", "key", "row", "open", "old_key", "order"),
        F.timestamp_micros("time_us").alias("source_time"),
        late.alias("late"),
        # a message without a table belongs to the table of its topic's name
        *([] if folded else [F.coalesce("source_table", topic).alias("source_table")]),
        *([f"n_{op}" for op in OPS] if folded else []),
    )
    return PackedRows(frame, folded, merged.keys, merged.filled, cells=cells, layout=layout, facts=merged)


def unpacked(frame: DataFrame, layout: PackedLayout, only: str) -> DataFrame:
    """Return the rows of a packed frame that have some ops."""
    counts = ", ".join(f"{count} int" for count in COUNTS)
    more = f"`order` string, time_us bigint, partition string, {counts}, source_table string"
    schema = f"{change_schema(layout.types, layout.key)}, {more}"
    task = UnpackTask(tuple(layout.types), layout.key, only, layout.whole_deletes)
    return run_tasks(frame.select("packed"), task, schema)


def _late(marks: Mapping[str, str] | None) -> Column:
    """Check whether an event is not above its partition's mark; all are late without trusted marks."""
    if not marks:
        return F.lit(True)
    known = F.create_map(*[F.lit(x) for pair in marks.items() for x in pair])
    return F.coalesce(F.col("order") <= F.try_element_at(known, F.col("partition")), F.lit(True))
