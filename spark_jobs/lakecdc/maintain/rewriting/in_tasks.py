"""Rewrite with Arrow in tasks: files are read, ordered, written and read back without a row in the JVM.

If rows keep their order, or a unit becomes one file, the same task reads and writes the rows. If a unit becomes a few
files, each writing task reads all of the unit's files and keeps only its rows: to decode a row again is cheaper than
Spark's shuffle. In larger units the reading tasks sort rows, and the shuffle sends these sorted runs, each as one
value, to the tasks that merge and write the runs of one file.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.iceberg.bloom_columns import bloom_filter_properties
from lakecdc.iceberg.bulk import COLLECTION, CONTENT_FILE, FILE_SCAN_TASK, java_calls
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import folder_of_work, reaches
from lakecdc.iceberg.file_tasks import position_deletes_of
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import java_list
from lakecdc.iceberg.partition_fields import identity_values
from lakecdc.iceberg.rewrite_tasks import runs_session
from lakecdc.iceberg.staging import WrittenFile, describe_like
from lakecdc.key_search.tasks import unpacked
from lakecdc.local_relation import local_relation
from lakecdc.maintain.rewriting import placing
from lakecdc.maintain.rewriting.choice import run_order
from lakecdc.maintain.rewriting.proof import Evidence, Facts, prove, sampled_columns
from lakecdc.maintain.rewriting.ranges import Range, ranges_of, readers_of, shared
from lakecdc.maintain.rewriting.tasks import (
    GROUP_BYTES,
    RANGE,
    RESULT,
    RUN,
    SAMPLE,
    MergeTask,
    Result,
    RewriteTask,
    RunsTask,
    SampleTask,
    Source,
)
from lakecdc.maintain.rewriting.written import Written
from lakecdc.maintain.run_order import RunOrder
from lakecdc.reader.data_files import LINEAGE
from lakecdc.reader.projection import UnreadError, read_columns
from lakecdc.writer.parquet import FileColumn, FileLayout, bloom_filters

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.rewrite import RewritePlan
    from lakecdc.maintain.rewriting.placing import Placing
    from lakecdc.maintain.selection import Unit
    from lakecdc.maintain.verify_rows import Proof

_ROW_GROUP_BYTES = "write.parquet.row-group-size-bytes"
#: maximum number of tasks that each read a whole unit; for more, the shuffle is cheaper
MOST_READERS = 4
_NAME_MAPPING = "schema.name-mapping.default"


class TaskRewrite:
    """Rewrite the units of a plan in tasks.

    :param bloom_filters: columns with Bloom filters in the new files.
    """

    def __init__(self, table: IcebergTable, plan: RewritePlan, proved: Proof, bloom_filters: Sequence[str]) -> None:
        self._table, self._plan, self._proved, self._bloom_filters = table, plan, proved, bloom_filters
        self._session = runs_session(table.spark)
        # tasks need an order they can evaluate, see choice
        self._order = run_order(table, plan.order) or RunOrder()

    def write(self, units: Sequence[Unit], tasks: Mapping[str, Any], planned: Mapping[str, Any]) -> Written:
        """Write the files of units, which are either all in sequence or none.

        :param tasks: scan tasks by location, without equality deletes.
        :param planned: scan tasks of these and other files, with the deletes that apply.
        :raises UnreadError: Arrow cannot read one of the files.
        """
        in_order = units[0].in_sequence or not self._order.fields
        ranges, facts = list(ranges_of(units, in_order=in_order)), self._facts(units, tasks)
        with folder_of_work(self._table, "rewrite") as folder:
            task = self._task(folder)
            if not in_order and ranges:
                task = replace(task, placing=self._placing(task, units, ranges, facts))
            results = self._run(task, units, ranges, facts)
            if unread := [one.reason for one in results if one.kind == "unread"]:
                raise UnreadError(unread[0])
            files = self._described(units, tasks, results)
        evidence = Evidence(ranges, planned, facts, results)
        return Written(files, partial(prove, self._table, self._proved.columns, evidence))

    def _task(self, folder: str) -> RewriteTask:
        table, lineage = self._table, self._table.format_version >= 3
        names = {name: name for name in table.column_names}
        layout = FileLayout.of(table, folder, names)
        for column in LINEAGE if lineage else ():
            layout = layout.with_column(FileColumn(column.id, column.name, column.type, column.required, column.name))
        filters = bloom_filters({**table.properties, **bloom_filter_properties(table, self._bloom_filters)})
        # the plan fixes the number of files; a file is cut only if the estimate is far off
        layout = replace(layout, bloom=filters, file_bytes=2 * self._plan.target)
        columns = read_columns(table.schema_fields)
        source = Source(columns, layout.properties, table.properties.get(_NAME_MAPPING))
        group_bytes = min(GROUP_BYTES, int(table.properties.get(_ROW_GROUP_BYTES, GROUP_BYTES)))
        hashed = self._proved.columns
        return RewriteTask(source, layout, hashed, sampled_columns(table, hashed), lineage, group_bytes)

    def _facts(self, units: Sequence[Unit], tasks: Mapping[str, Any]) -> Facts:
        """Describe the files of units.

        :raises UnreadError: tasks cannot read deletes that apply to a file, or a unit's files are of several
            partitions.
        """
        calls, java = java_calls(self._table.spark), java_list(self._table.spark, tasks.values())
        file, deletes = (calls.method(FILE_SCAN_TASK, name)(calls.it) for name in ("file", "deletes"))
        names = ("location", "firstRowId", "dataSequenceNumber", "recordCount")
        known = [calls.method(CONTENT_FILE, name)(file) for name in names]
        # exact values, unlike those of the facts
        text = calls.method("java.lang.String", "valueOf", OBJECT)(calls.method(CONTENT_FILE, "partition")(file))
        rows = calls.rows(java, *known, calls.method(COLLECTION, "size")(deletes), text)
        values: dict[str, str | None] = {}
        for unit in units:
            of_unit = identity_values(self._table, tasks[unit.files[0].location])
            values |= dict.fromkeys((one.location for one in unit.files), of_unit)
        facts, partitions = dict[str, tuple[Any, ...]](), dict[str, str]()
        for number, ((location, *of_file, applying, partitions[location]), others) in enumerate(
            zip(rows, position_deletes_of(calls, java), strict=True)
        ):
            if len(others) < applying or not all(reaches(one.location) for one in others):
                raise UnreadError(f"tasks cannot read the deletes of {location}")
            positions = [one.for_tasks for one in others]
            facts[location] = (number, location, *of_file, values[location], positions)
        if any(len({partitions[one.location] for one in unit.files}) > 1 for unit in units):
            raise UnreadError("files of several partitions are rewritten together")
        return facts

    def _frame(self, ranges: Iterable[Range], facts: Facts) -> DataFrame:
        rows = [
            (
                one.unit,
                one.output,
                place,
                one.first,
                one.last,
                one.from_file,
                one.to_file,
                one.counted,
                *facts[one.file.location],
            )
            for place, one in enumerate(ranges)
        ]
        return local_relation(self._session, rows, RANGE)

    def _spread(self, ranges: Sequence[Range], facts: Facts) -> DataFrame:
        """Distribute ranges over tasks, round robin."""
        hands = max(1, min(len(ranges), 2 * self._session.sparkContext.defaultParallelism))
        return self._frame(ranges, facts).repartitionById(hands, F.expr(f"place % {hands}"))

    def _run(self, task: RewriteTask, units: Sequence[Unit], ranges: Sequence[Range], facts: Facts) -> list[Result]:
        direct, to_sort = list[Range](), list[Range]()
        cores = math.ceil(self._session.sparkContext.defaultParallelism / len(units))
        for number, of_unit in groupby(ranges, attrgetter("unit")):
            files = 1 + len(task.placing.cuts.get(number, ()) if task.placing else ())
            if (readers := readers_of(units[number], files, cores)) > MOST_READERS:
                to_sort.extend(of_unit)
            else:
                direct.extend(shared(of_unit, files, readers))
        outputs, frames = sum(unit.outputs for unit in units), list[DataFrame]()
        if direct:
            rows = self._frame(direct, facts).repartitionById(outputs, "output")
            frames.append(run_tasks(rows, task, RESULT))
        if to_sort:
            runs = run_tasks(self._spread(to_sort, facts), RunsTask(task), RUN)
            merged = runs.repartitionById(outputs, "output")
            file_of = tuple((number, file) for number, unit in enumerate(units) for file in range(unit.outputs))
            frames.append(run_tasks(merged, MergeTask(task, file_of), RESULT))
        return [Result(*row) for row in reduce(DataFrame.unionAll, frames).collect()] if frames else []

    def _placing(self, task: RewriteTask, units: Sequence[Unit], ranges: Sequence[Range], facts: Facts) -> Placing:
        """Sample the sort columns of units that become several files or parts, or are sorted by a curve."""
        curve = self._plan.order.curve
        sample: dict[int, list[pa.Table]] = {}
        divisions = [placing.Division.of(unit) for unit in units]
        steps = {number: d.sampling_step(curve) for number, d in enumerate(divisions) if d.is_sampled(curve)}
        if sampled := [one for one in ranges if one.unit in steps]:
            keys = tuple(column for column in task.source.columns if column.name in self._order.sources)
            work = SampleTask(replace(task.source, columns=keys), steps)
            rows = run_tasks(self._spread(sampled, facts), work, SAMPLE)
            for row in rows.collect():
                if row["reason"]:
                    raise UnreadError(row["reason"])
                sample.setdefault(row["unit"], []).append(unpacked(row["rows"]))
        return placing.placing_of(self._order, curve, sample, divisions)

    def _described(self, units: Sequence[Unit], tasks: Mapping[str, Any], results: Iterable[Result]) -> list[Any]:
        """Describe the new files to Iceberg, in the partition of their unit's files."""
        unit_of = [unit for unit in units for _ in range(unit.outputs)]
        by_place = defaultdict[str, list[WrittenFile]](list)
        for one in results:
            if one.kind == "written":
                file = WrittenFile(one.location, one.bytes, offsets=tuple(one.offsets), nans=one.nans)
                by_place[unit_of[one.number].files[0].location].append(file)
        order_id = self._plan.order.id
        return [
            file
            for location, written in by_place.items()
            for file in describe_like(self._table, written, tasks[location].file(), order_id)
        ]
