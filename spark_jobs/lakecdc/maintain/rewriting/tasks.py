"""Tasks that rewrite data files with Arrow; separate from the driver's code, which workers need not import."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecdc.iceberg import file_io
from lakecdc.key_search.tasks import serialized, unpacked
from lakecdc.maintain.rewriting.row_hash import RowHash, summed
from lakecdc.maintain.sorted_parts import SortedParts
from lakecdc.reader.data_files import FILE, FileRows
from lakecdc.reader.projection import ReadColumn, UnreadError
from lakecdc.runtime.worker import TASK_MEMORY, settle, spill_folder
from lakecdc.writer.files import slices
from lakecdc.writer.parquet import ArrowFile

if TYPE_CHECKING:
    from lakecdc.maintain.rewriting.placing import Placing
    from lakecdc.writer.parquet import FileLayout

#: a range of a file's rows to read, see :class:`~lakecdc.maintain.rewriting.ranges.Range`
RANGE = (
    f"unit int, output int, place int, first bigint, last bigint, from_file int, to_file int, counted boolean, {FILE}"
)
#: results of tasks: ``read`` for a range, ``written`` for a file, ``unread`` for a file that Arrow cannot read
RESULT = (
    "kind string, number int, location string, bytes bigint, rows bigint, deleted bigint, hash bigint, sampled bigint, "
    "offsets array<bigint>, nans string, reason string"
)
#: results to pass on, or sorted rows of an output
RUN = f"output int, run binary, {RESULT}"
_RESULT = pa.schema(
    {
        "kind": pa.string(),
        "number": pa.int32(),
        "location": pa.string(),
        **dict.fromkeys(("bytes", "rows", "deleted", "hash", "sampled"), pa.int64()),
        "offsets": pa.list_(pa.int64()),
        "nans": pa.string(),
        "reason": pa.string(),
    }
)
_RUN = pa.schema([("output", pa.int32()), ("run", pa.binary()), *_RESULT])
#: bytes in memory of rows that become a row group
GROUP_BYTES = 64 * 1024 * 1024
# bytes of rows that are hashed at once: DuckDB needs a millisecond or two to start
_HASHED_BYTES = 32 * 1024 * 1024
# bytes of rows that are sorted at once; meanwhile a task holds them twice, and Spark once
_RUN_BYTES = 32 * 1024 * 1024
# bytes of a run that Spark carries as one value: each larger value makes the JVM collect garbage
_PART_BYTES = 768 * 1024
_LEAST_MEMORY = 128
# of Python, of the rows of a file that is read, and of the row group that is written
_OTHER_MEMORY = 640
# sorted tables that become a row group
_TABLES_OF_GROUP = 4


class Result(NamedTuple):
    """A row of :data:`RESULT`."""

    kind: str
    number: int
    location: str
    bytes: int
    rows: int
    deleted: int
    hash: int
    sampled: int
    offsets: list[int]
    nans: str
    reason: str


@dataclass(frozen=True)
class Source:
    """Settings for reading data files.

    :param columns: of the table.
    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param name_mapping: the table property ``schema.name-mapping.default``.
    """

    columns: tuple[ReadColumn, ...]
    properties: Mapping[str, str] = field(repr=False)
    name_mapping: str | None = None

    def rows(self, one: Mapping[str, Any], *, lineage: bool = False) -> FileRows:
        """Return the live rows of a range, given as a row of :data:`RANGE`."""
        ends = {"begin": one["first"], "end": one["last"], "name_mapping": self.name_mapping}
        return FileRows(one, self.columns, self.properties, lineage=lineage, **ends)


@dataclass(frozen=True)
class RewriteTask:
    """A task that reads ranges of data files and writes the new files of each output.

    :param layout: of the new files.
    :param hashed: the columns of the proof; without any, files are not read back.
    :param sampled: the hashed columns that Iceberg's reader in Spark has too.
    :param lineage: whether rows have ids.
    :param group_bytes: bytes of rows that become a row group.
    :param placing: the order of rows; None keeps the order of the read.
    """

    source: Source
    layout: FileLayout
    hashed: tuple[str, ...]
    sampled: tuple[str, ...]
    lineage: bool
    group_bytes: int = GROUP_BYTES
    placing: Placing | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        ranges = sorted(_rows(batches), key=itemgetter("unit", "output", "place"))
        for (output, *share), of_output in groupby(ranges, itemgetter("output", "unit", "from_file", "to_file")):
            results = list[dict[str, Any]]()
            try:
                tables = (rows for one in of_output for rows in self.read(one, results))
                if self.placing is None:
                    yield from self.write(output, tables)
                else:
                    yield from self._write_sorted(output, share, tables)
            except UnreadError as error:
                results.append(_unread(error))
            yield _batch(results, _RESULT)

    def _write_sorted(self, output: int, share: Sequence[int], tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Write a share of a unit's new files, one after another.

        :param output: number of the share's first file.
        :param share: the unit, and its first and last new file.
        """
        assert self.placing is not None
        unit, begin, end = share
        cuts, order = self.placing.cuts.get(unit, ())[begin : end - 1], self.placing.order
        with self.sorted_parts(unit, begin, end) as parts:
            for piece in tables:
                parts.add(self.placing.share(unit, begin, end, piece))
            by_file = (part for rows in self.sorted_rows(parts) for part in order.cut(rows, cuts))
            for number, of_file in groupby(by_file, itemgetter(0)):
                yield from self.write(output + number, (rows for _, rows in of_file))

    def read(self, file: Mapping[str, Any], results: list[dict[str, Any]]) -> Iterator[pa.Table]:
        """Yield the live rows of a range; if it is counted, add its result after the last row."""
        rows = self.source.rows(file, lineage=self.lineage)
        if not file["counted"]:
            yield from rows
            return
        totals = [0] * len(self._hashes)
        for table in slices(rows, _HASHED_BYTES):
            totals = [summed([total, one.of(table)]) for total, one in zip(totals, self._hashes, strict=True)]
            yield table
        counts = {"rows": rows.rows, "deleted": rows.deleted, "hash": totals[0], "sampled": totals[-1]}
        results.append({"kind": "read", "number": file["number"], **counts})

    def sorted_parts(self, unit: int, from_file: int, to_file: int) -> SortedParts:
        """Create the empty parts of some of a unit's files, in the memory that reading and writing leave."""
        assert self.placing is not None
        task = int(os.environ.get(TASK_MEMORY, "0"))
        memory = max(_LEAST_MEMORY, task // 2, task - _OTHER_MEMORY) * 1024 * 1024
        parts = self.placing.parts_of(unit, from_file, to_file)
        return SortedParts(self.placing.order, parts, memory, spill_folder())

    def sorted_rows(self, parts: SortedParts) -> Iterator[pa.Table]:
        """Yield the rows of parts in tables that fill a row group without much more."""
        return parts.sorted(self.group_bytes // _TABLES_OF_GROUP)

    def write(self, output: int, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one output, and yield its files: one, unless the plan underestimated it."""
        file = ArrowFile(self.layout)
        for piece in slices(tables, self.group_bytes):
            file.write(piece)
            if file.size >= self.layout.file_bytes:
                yield self._written(output, file)
                file = ArrowFile(self.layout)
        if file.location is not None:
            yield self._written(output, file)

    def _written(self, output: int, file: ArrowFile) -> pa.RecordBatch:
        facts = {"bytes": file.close(), "rows": file.rows, "offsets": file.offsets, "nans": json.dumps(file.nans)}
        return _batch([{"kind": "written", "number": output, "location": file.location, **facts}], _RESULT)

    @cached_property
    def _hashes(self) -> list[RowHash]:
        return [RowHash(columns) for columns in dict.fromkeys((self.hashed, self.sampled))]


@dataclass(frozen=True)
class RunsTask:
    """A task that reads ranges of data files and yields their rows as sorted runs for the outputs of their units."""

    task: RewriteTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        placing = self.task.placing
        assert placing is not None
        ranges = sorted(_rows(batches), key=itemgetter("unit", "place"))
        for (unit, output), of_unit in groupby(ranges, itemgetter("unit", "output")):
            results = list[dict[str, Any]]()
            try:
                tables = (rows for one in of_unit for rows in self.task.read(one, results))
                for piece in slices(tables, _RUN_BYTES):
                    for number, run in placing.cut(unit, piece):
                        for part in _parts(run):
                            yield _batch([{"output": output + number, "run": serialized(part)}], _RUN)
            except UnreadError as error:
                results.append(_unread(error))
            yield _batch([{"output": output, **result} for result in results], _RUN)


@dataclass(frozen=True)
class MergeTask:
    """A task that writes the sorted runs of an output to one file; it passes results through unchanged.

    :param file_of: the unit of each output, and the number of its file there.
    """

    task: RewriteTask
    file_of: tuple[tuple[int, int], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        parts: dict[int, SortedParts] = {}
        with ExitStack() as stack:
            for batch in batches:
                is_run = batch["run"].is_valid()
                yield batch.filter(pc.invert(is_run)).select(_RESULT.names)
                for row in batch.filter(is_run).select(["output", "run"]).to_pylist():
                    output: int = row["output"]
                    if output not in parts:
                        unit, file = self.file_of[output]
                        parts[output] = stack.enter_context(self.task.sorted_parts(unit, file, file + 1))
                    parts[output].add(unpacked(row["run"]))
            # a partition has the runs of one output
            for output, of_output in parts.items():
                yield from self.task.write(output, self.task.sorted_rows(of_output))


#: sampled rows of a unit, or why Arrow cannot read one of its files
SAMPLE = "unit int, rows binary, reason string"
_SAMPLE = pa.schema([("unit", pa.int32()), ("rows", pa.binary()), ("reason", pa.string())])


@dataclass(frozen=True)
class SampleTask:
    """A task that samples the rows of data files, deleted ones included.

    :param source: with the columns to sample.
    :param steps: distance between sampled rows, by unit.
    """

    source: Source
    steps: Mapping[int, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for file in _rows(batches):
            step, skipped = self.steps[file["unit"]], 0
            try:
                for table in self.source.rows({**file, "deletes": []}):
                    places = pa.array(range(skipped, table.num_rows, step), pa.int64())
                    skipped = (skipped - table.num_rows) % step
                    yield _batch([{"unit": file["unit"], "rows": serialized(table.take(places))}], _SAMPLE)
            except UnreadError as error:
                yield _batch([{"unit": file["unit"], "reason": str(error)}], _SAMPLE)


#: number and hash of a partition's rows
HASH = "rows bigint, hash bigint"


@dataclass(frozen=True)
class HashTask:
    """A task that hashes the rows of Iceberg's reader in Spark.

    :param uuids: the columns with uuids.
    """

    hashed: tuple[str, ...]
    uuids: tuple[pa.Field, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        one, rows, total = RowHash(self.hashed, self.uuids), 0, 0
        for batch in batches:
            rows, total = rows + batch.num_rows, summed([total, one.of(pa.Table.from_batches([batch]))])
        yield _hash(rows, total)


@dataclass(frozen=True)
class ReadBackTask:
    """A task that reads and hashes finished files, given by their location."""

    hashed: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        one, rows, total = RowHash(self.hashed), 0, 0
        for row in _rows(batches):
            with file_io.source(self.properties, row["location"]).open() as stream:
                parquet = pq.ParquetFile(stream)
                rows += parquet.metadata.num_rows
                path = _local_path(row["location"])
                file_hash = one.of_file(path, parquet.schema_arrow) if path else None
                if file_hash is None:
                    read = parquet.iter_batches(columns=list(self.hashed), use_threads=False)
                    file_hash = summed(one.of(pa.Table.from_batches([batch])) for batch in read)
            total = summed([total, file_hash])
        yield _hash(rows, total)


def _hash(rows: int, total: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64()), "hash": pa.array([total], pa.int64())})


def _parts(run: pa.Table) -> Iterator[pa.Table]:
    """Slice a run into parts that are one value each."""
    step = max(1, run.num_rows * _PART_BYTES // max(run.nbytes, 1))
    return (run.slice(begin, step) for begin in range(0, run.num_rows, step))


def _local_path(location: str) -> str | None:
    """Return the path of a file that DuckDB can open; None in other storages, or if the path would be a pattern."""
    parts = urlsplit(location)
    return parts.path if parts.scheme in ("", "file") and not {*"*?["}.intersection(parts.path) else None


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _unread(error: UnreadError) -> dict[str, Any]:
    return {"kind": "unread", "reason": str(error)}
