"""Read the records of files, numbered in reading order: by file, then by place in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.explain import explain
from lakecdc.iceberg.jvm import hush
from lakecdc.ingest import change
from lakecdc.ingest.engine import pieces
from lakecdc.ingest.engine.pieces import local_path
from lakecdc.ingest.engine.run import Scan
from lakecdc.ingest.formats.messages import from_values, place_sql
from lakecdc.ingest.formats.rows import delimited, elements, read_cells
from lakecdc.ingest.formats.rows.cells import Cells, typed_cells
from lakecdc.ingest.sources.containers import CONTAINERS, read_containers
from lakecdc.local_relation import local_relation, spread
from lakecdc.sql import quoted_column, sql_types

# 22 bits number the file, 13 its splits (which Spark makes no smaller than 4 MiB), 28 the record in its task
_SPLIT_BITS, _RECORD_BITS, _SPLIT_UNIT = 13, 28, 22
# looks for the log of a streaming sink
_SINK_LOOKUP = "org.apache.spark.sql.execution.streaming.sinks.FileStreamSink"
# most bytes of text that one task decodes, and whose keys one task folds
_BYTES_PER_TASK, _BYTES_PER_FOLD = 512 * 1024 * 1024, 256 * 1024 * 1024


def list_files(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return the files of paths and globs as sorted URIs; raise an :class:`InputError` if that fails."""
    # it logs a stack trace for every glob
    hush(spark, _SINK_LOOKUP)
    try:
        return sorted(spark.read.text(list(paths)).inputFiles())
    except Exception as error:
        raise InputError(
            f"Cannot list the files {', '.join(paths)}: {str(error).splitlines()[0]}",
            hint="Check source.path; a glob must match at least one file.",
        ) from error


def lines(spark: SparkSession, numbers: Mapping[str, int], files: Sequence[str] | None = None) -> DataFrame:
    """Return the nonempty lines of files: ``file, value, arrival, place``.

    :param numbers: number of each file of the batch.
    :param files: those to read; default: all.
    """
    _refuse_long_lines(spark, files or list(numbers))
    text = spark.read.text(_paths(files or list(numbers))).select(F.col("value"), *_where())
    return _placed(spark, text.where("length(trim(value)) > 0"), numbers)


def _refuse_long_lines(spark: SparkSession, files: Sequence[str]) -> None:
    """Refuse files with lines too long for Spark, which would read them whole into memory."""
    planned = pieces.plan(dict.fromkeys(files, 0), spark.sparkContext.defaultParallelism, _BYTES_PER_TASK)
    suspects = planned[0].that_may_be_long() if planned else None
    if suspects is not None and suspects.tasks:
        tasks = len(suspects.tasks)
        run_tasks(spark.range(0, tasks, 1, tasks), suspects.check, "place bigint").collect()


def scan_of_lines(spark: SparkSession, numbers: Mapping[str, int]) -> Scan | None:
    """Return the lines, read by the tasks that decode them; None if the files are not on a local disk."""
    planned = pieces.plan(numbers, spark.sparkContext.defaultParallelism, _BYTES_PER_TASK)
    if planned is None:
        return None
    read, total = planned
    tasks = len(read.tasks)
    groups = max(min(tasks, spark.sparkContext.defaultParallelism), -(-total // _BYTES_PER_FOLD))
    return Scan(spark, read, tasks, groups, False, _restored(spark, numbers))


def scan_of_containers(spark: SparkSession, numbers: Mapping[str, int]) -> Scan:
    """Return the records of Avro container files, read by the tasks that decode them."""
    groups = spark.sparkContext.defaultParallelism
    files = [(number, name, local_path(name)) for name, number in numbers.items()]
    if all(path for _, _, path in files):
        rows = spread(spark, [(*file, None) for file in files], CONTAINERS)
    else:
        contents = spark.read.format("binaryFile").load(_paths(list(numbers)))
        contents = contents.select(F.input_file_name().alias("file"), "content")
        named = contents.join(_numbered(spark, numbers), "file")
        rows = named.selectExpr("number", "file", "CAST(NULL AS string) AS path", "content")
    return Scan(spark, read_containers, len(files), groups, False, _restored(spark, numbers), rows)


def _restored(spark: SparkSession, numbers: Mapping[str, int]) -> Callable[..., DataFrame]:
    """Return the function that makes messages of values read by tasks, see :class:`Scan`."""

    def messages(values: DataFrame, *more: str) -> DataFrame:
        placed = values.withColumn("number", F.shiftright("arrival", pieces.PLACE_BITS))
        placed = placed.join(_numbered(spark, numbers), "number")
        # cut lines as Spark does
        line = placed.withColumn("value", F.expr(r"trim(TRAILING '\r\n' FROM value)"))
        return from_values(line.selectExpr("value", "arrival", place_sql("file"), *more), *more)

    return messages


def stretches(
    spark: SparkSession, numbers: Mapping[str, int], pattern: str, files: Sequence[str] | None = None
) -> DataFrame:
    """Return the parts of files that match a Java regular expression, with the columns of ``lines``.

    One task reads each file. A file that is not UTF-8 is one part, unchanged.
    """
    text = spark.read.text(_paths(files or list(numbers)), wholetext=True)
    parts = F.regexp_extract_all("value", F.lit(pattern), F.lit(0))
    parts = F.when(F.is_valid_utf8("value"), parts).otherwise(F.array("value"))
    stretch = text.select(F.input_file_name().alias("file"), F.lit(0).alias("split"), F.posexplode(parts))
    named = stretch.select("file", "split", F.col("pos").cast("bigint").alias("record"), F.col("col").alias("value"))
    return _placed(spark, named.where("length(trim(value)) > 0"), numbers)


def cells_of_files(
    spark: SparkSession, numbers: Mapping[str, int], source: FilesSource, known: Mapping[str, str]
) -> Cells:
    """Return the rows of numbered files, split into columns; ``known`` has the types of the table's columns."""
    if source.format == "parquet":
        return _parquet(spark, numbers)
    if source.format == "xml":
        assert source.xml
        parts = stretches(spark, numbers, elements.record_pattern(source.xml.row_tag))
        messages = from_values(parts.where(~elements.is_comment("value")))
        return read_cells(messages, source, known, elements.schema_of(spark, _paths(list(numbers)), source.xml))
    if source.format == "text":
        return read_cells(from_values(lines(spark, numbers)), source, known)
    return read_cells(_csv(spark, numbers, source), source, known)


def _csv(spark: SparkSession, numbers: Mapping[str, int], source: FilesSource) -> DataFrame:
    settings = delimited.settings_of(source)

    def read(files: Sequence[str] | None = None) -> DataFrame:
        pattern = delimited.record_pattern(settings)
        records = stretches(spark, numbers, pattern, files) if settings.multiline else lines(spark, numbers, files)
        # invalid UTF-8 is not a comment
        is_comment = F.col("value").startswith(settings.comment) & F.is_valid_utf8("value")
        return records.where(~is_comment) if settings.comment else records

    if not settings.header:
        return from_values(read())
    groups: dict[str, list[str]] = {}
    header = F.min_by("value", "arrival")
    for row in read().groupBy("file").agg(header.alias("header"), F.is_valid_utf8(header).alias("is_text")).collect():
        if not row["is_text"]:
            raise InputError(
                f"The header of {row['file']} is not UTF-8.", hint="Convert the file, such as with iconv -t UTF-8."
            )
        groups.setdefault(row["header"], []).append(row["file"])
    frames = [delimited.with_header(from_values(read(sorted(files))), h) for h, files in sorted(groups.items())]
    return reduce(lambda a, b: a.unionAll(b), frames) if frames else from_values(read())


def _parquet(spark: SparkSession, numbers: Mapping[str, int]) -> Cells:
    try:
        rows = spark.read.option("mergeSchema", "true").parquet(*_paths(list(numbers)))
    except Exception as error:
        message = _text(error)
        for name in numbers:
            _refuse_damaged(spark, name)
        raise InputError(
            f"The Parquet files cannot be read together: {message}",
            hint="Remove files that are not Parquet. If their types differ, feed the older files first, with a "
            "separate path or max_files_per_run.",
        ) from error
    cells = F.struct(*[F.col(quoted_column(name)) for name in rows.columns]).alias("cells")
    placed = _arranged(spark, rows.select(cells, *_where()), numbers, "cells", "file AS source")
    return typed_cells(placed, tuple(change.Column(name, kind) for name, kind in sql_types(rows).items()))


def _refuse_damaged(spark: SparkSession, name: str) -> None:
    """Raise an error if a Parquet file cannot be read; Spark does not name the damaged one of many."""
    try:
        spark.read.parquet(*_paths([name]))
    except Exception as error:
        raise InputError(
            f"The Parquet file {name} cannot be read: {_text(error)}", hint="Repair it, or remove it from the folder."
        ) from error


def _text(error: Exception) -> str:
    cause = explain(error)
    return cause.text if cause else str(error).splitlines()[0]


def _where() -> list[Column]:
    """Return the place of a record: file, split and number in the task."""
    split = F.shiftright(F.input_file_block_start(), _SPLIT_UNIT)
    record = F.monotonically_increasing_id()
    return [F.input_file_name().alias("file"), split.alias("split"), record.alias("record")]


def _placed(spark: SparkSession, records: DataFrame, numbers: Mapping[str, int]) -> DataFrame:
    return _arranged(spark, records, numbers, "file", "value", place_sql("file"))


def _arranged(spark: SparkSession, records: DataFrame, numbers: Mapping[str, int], *more: str) -> DataFrame:
    """Return ``arrival`` and further columns of records."""
    arrival = (
        f"shiftleft(number, {_SPLIT_BITS + _RECORD_BITS}) + shiftleft(CAST(split AS bigint), {_RECORD_BITS}) "
        f"+ (record & {(1 << _RECORD_BITS) - 1}L) AS arrival"
    )
    return records.join(_numbered(spark, numbers), "file").selectExpr(arrival, *more)


def _numbered(spark: SparkSession, numbers: Mapping[str, int]) -> DataFrame:
    """Return the files of a batch with their numbers, for a join."""
    return F.broadcast(local_relation(spark, list(numbers.items()), "file string, number bigint"))


def _paths(files: Sequence[str]) -> list[str]:
    """Convert URIs to paths for Spark's readers: decoded, with the signs of globs escaped."""
    escapes = str.maketrans({sign: f"\\{sign}" for sign in "\\[]{}*?"})
    return [unquote(name).translate(escapes) for name in files]
