"""Build frames of contributions to the rows of a merged table, and merge them in tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.definition import current_spec_id, partition_expressions
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.change import Rows
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.fold import grouping
from lakecdc.ingest.engine.packed import PackedLayout, PackedRows, packed_rows
from lakecdc.ingest.erased import erased_keys
from lakecdc.ingest.fold import is_suspect
from lakecdc.ingest.lookup import LookedUp
from lakecdc.ingest.merging.combine import SEPARATOR, Rules
from lakecdc.ingest.merging.tasks import CombineTask, Contributing, EventFacts, EventsTask, Origin, RowsTask
from lakecdc.key_search.keys import MOST_KEYS
from lakecdc.sql import parsed_type

# contributions that a task merges
_ROWS_PER_TASK = 500_000


def without_erased(events: DataFrame, table: IcebergTable, key: Sequence[str], mark: str, feed: str) -> DataFrame:
    """Remove a feed's events of erased keys up to an order key."""
    suspects = events.where(is_suspect(mark)).select("key", "order")
    erased = erased_keys(table, suspects, key, feed)
    if erased is None:
        return events
    void = F.broadcast(erased.distinct().withColumn("erased", F.lit(True)))
    return events.join(void, "key", "left").where(~(is_suspect(mark) & F.col("erased").isNotNull()))


@dataclass(frozen=True)
class EventContributions:
    """Contributions of events.

    :param frame: packed, kept by Spark.
    """

    frame: DataFrame
    facts: EventFacts


@dataclass(frozen=True)
class Contributions:
    """Build contributions to the rows of a table, and merge them.

    :param events: number of the events, to size tasks.
    :param origin: source tables of the events.
    """

    table: IcebergTable
    rules: Rules
    events: int
    origin: Origin = Origin()

    @cached_property
    def _types(self) -> dict[str, str]:
        """SQL types of the table's columns and order columns."""
        return {c.name: c.type for c in self.rules.columns} | dict.fromkeys(self.rules.order_columns, "string")

    @cached_property
    def _of(self) -> Contributing:
        key, table = self.rules.key, self.table
        expressions = partition_expressions(table, current_spec_id(table))
        parallelism = table.spark.sparkContext.defaultParallelism
        # as many rows as events
        tasks = max(parallelism, -(-2 * self.events // _ROWS_PER_TASK))
        groups = grouping(expressions, key, [self._types[name] for name in key], tasks)
        return Contributing(self.rules, groups, to_arrow_schema(_struct(self._types)))

    def of_events(self, rows: Rows) -> EventContributions:
        """Return the contributions of a batch's events, which the caller releases."""
        if isinstance(rows, PackedRows) and not rows.folded and self._has_types_of(rows.layout):
            frame, names, packed = rows.cells.select("packed"), tuple(rows.layout.types), True
        else:
            frame, names, packed = self._laid_out(rows.frame), tuple(c.name for c in self.rules.columns), False
        task = EventsTask(self._of, names, packed, self.origin)
        frame = run_tasks(frame, task, packing.SCHEMA).persist()
        parts = (msgspec.json.decode(row[0], type=EventFacts) for row in frame.select("facts").collect() if row[0])
        return EventContributions(frame, reduce(EventFacts.__add__, parts, EventFacts()))

    def _has_types_of(self, layout: PackedLayout) -> bool:
        return all(self._types.get(name, kind) == kind for name, kind in layout.types.items())

    def _laid_out(self, events: DataFrame) -> DataFrame:
        """Return events in the engine's packed columns, with the table's types."""
        there = {*events.select("row.*").columns}
        values = [(F.col("row")[c.name] if c.name in there else F.lit(None)).cast(c.type) for c in self.rules.columns]
        table = F.col("source_table") if "source_table" in events.columns else F.lit(None).cast("string")
        return events.select(
            "op",
            *[F.col("key")[name].cast(self._types[name]).alias(f"k{i}") for i, name in enumerate(self.rules.key)],
            *[value.alias(f"c{i}") for i, value in enumerate(values)],
            # Spark is ten times as slow in passing rows to a task if a column is a list
            F.array_join(F.when(F.size("open") > 0, F.col("open")), SEPARATOR).alias("open"),
            F.col("old_key").isNotNull().alias("moved"),
            "order",
            F.unix_micros("source_time").alias("time_us"),
            F.lit("").alias("partition"),
            table.alias("source_table"),
        )

    def keys_of(self, events: EventContributions) -> DataFrame:
        """Return the keys of events, by column name; distinct only if there are many."""
        schema, cells = _struct({name: self._types[name] for name in self.rules.key}), F.col("aside")
        keys = run_tasks(events.frame.select(cells).where(cells.isNotNull()), packing.rows_of_cells, schema)
        return keys if self.events <= MOST_KEYS else keys.distinct()

    def of_rows(self, looked_up: LookedUp, *, remembered: bool = False, since: str | None = None) -> DataFrame:
        """Return the contributions of the table's rows, or of remembered deletes.

        :param since: order key below which rows are void.
        """
        task = RowsTask(self._of, remembered=remembered, since=since)
        return looked_up.read(then=task, schema=packing.SCHEMA)

    def merged(
        self,
        contributions: Sequence[DataFrame],
        left_out: Collection[str],
        *,
        removes: bool = True,
        forgets: bool = False,
        truncates: bool = False,
    ) -> PackedRows:
        """Merge the contributions of each key; see :class:`~lakecdc.ingest.merging.tasks.CombineTask`.

        :return: one row per changed key, with missing columns in ``open``; the caller releases it.
        """
        together, of = reduce(DataFrame.unionByName, contributions), self._of
        task = CombineTask(of, frozenset(left_out), removes, forgets, truncates)
        by_key = together.repartitionById(of.grouping.tasks, "grp").select("packed")
        cells = run_tasks(by_key, task, packing.SCHEMA).persist()
        layout = PackedLayout(self._types, self.rules.key, of.grouping, 0, whole_deletes=True)
        return replace(packed_rows(cells, layout, folded=True), cached=(cells,))


def _struct(types: Mapping[str, str]) -> T.StructType:
    return T.StructType([T.StructField(name, parsed_type(kind)) for name, kind in types.items()])
