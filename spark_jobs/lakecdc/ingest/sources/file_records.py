"""Records of files, numbered so that the numbers rise in reading order: file, then place in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.explain import explain
from lakecdc.iceberg.jvm import hush
from lakecdc.ingest import change
from lakecdc.ingest.engine import pieces
from lakecdc.ingest.engine.run import Scan
from lakecdc.ingest.formats.messages import from_values, place_sql
from lakecdc.ingest.formats.rows import delimited, elements, read_cells
from lakecdc.ingest.formats.rows.cells import Cells, typed_cells
from lakecdc.local_relation import local_relation
from lakecdc.sql import quoted_column, sql_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakecdc.contract.sources.files import FilesSource

# 22 bits number the file, 13 its splits (which Spark makes no smaller than 4 MiB), 28 the record in its task
_SPLIT_BITS, _RECORD_BITS, _SPLIT_UNIT = 13, 28, 22
# looks for the log of a streaming sink
_SINK_LOOKUP = "org.apache.spark.sql.execution.streaming.sinks.FileStreamSink"
# bytes of text that one task decodes at most, and whose keys one task folds
_BYTES_PER_TASK, _BYTES_PER_FOLD = 512 * 1024 * 1024, 256 * 1024 * 1024


def list_files(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return the files that paths and globs name, as URIs, sorted.

    :raises InputError: if a path names nothing that can be read.
    """
    # it warns of every glob, with a page of stack trace: no file has the glob's own name
    hush(spark, _SINK_LOOKUP)
    try:
        return sorted(spark.read.text(list(paths)).inputFiles())
    except Exception as error:
        raise InputError(
            f"The files {', '.join(paths)} cannot be listed: {str(error).splitlines()[0]}",
            hint="Check source.path; a glob must match at least one file.",
        ) from error


def lines(spark: SparkSession, numbers: Mapping[str, int], files: Sequence[str] | None = None) -> DataFrame:
    """Lines of files that are not empty: ``file, value, arrival, place``.

    :param numbers: number of every file of the batch.
    :param files: those to read; default: all.
    """
    _refuse_long_lines(spark, files or list(numbers))
    text = spark.read.text(_paths(files or list(numbers))).select(F.col("value"), *_where())
    return _placed(spark, text.where("length(trim(value)) > 0"), numbers)


def _refuse_long_lines(spark: SparkSession, files: Sequence[str]) -> None:
    """Look through files that may have lines too long for Spark, which would read one whole, whatever it takes."""
    planned = pieces.plan(dict.fromkeys(files, 0), spark.sparkContext.defaultParallelism, _BYTES_PER_TASK)
    suspects = planned[0].that_may_be_long() if planned else None
    if suspects is not None and suspects.tasks:
        tasks = len(suspects.tasks)
        spark.range(0, tasks, 1, tasks).mapInArrow(suspects.check, "place bigint").collect()


def scan_of_lines(spark: SparkSession, numbers: Mapping[str, int]) -> Scan | None:
    """Return the same lines, read by the tasks that decode them; None if the files are not on a local disk.

    :param numbers: number of every file of the batch.
    """
    planned = pieces.plan(numbers, spark.sparkContext.defaultParallelism, _BYTES_PER_TASK)
    if planned is None:
        return None
    read, total = planned
    tasks = len(read.tasks)
    groups = max(min(tasks, spark.sparkContext.defaultParallelism), -(-total // _BYTES_PER_FOLD))

    def messages(values: DataFrame, *more: str) -> DataFrame:
        placed = values.withColumn("number", F.shiftright("arrival", pieces.PLACE_BITS))
        placed = placed.join(_numbered(spark, numbers), "number")
        # as Spark cuts lines
        line = placed.withColumn("value", F.expr(r"trim(TRAILING '\r\n' FROM value)"))
        return from_values(line.selectExpr("value", "arrival", place_sql("file"), *more), *more)

    return Scan(spark, read, tasks, groups, False, messages)


def stretches(
    spark: SparkSession, numbers: Mapping[str, int], pattern: str, files: Sequence[str] | None = None
) -> DataFrame:
    """Stretches of files that a regular expression (Java) finds; a task reads each file whole. Columns as of ``lines``.

    A file that is no UTF-8 is one stretch, its bytes as they are.

    :param numbers: number of every file of the batch.
    :param files: those to read; default: all.
    """
    text = spark.read.text(_paths(files or list(numbers)), wholetext=True)
    found = F.regexp_extract_all("value", F.lit(pattern), F.lit(0))
    found = F.when(F.is_valid_utf8("value"), found).otherwise(F.array("value"))
    stretch = text.select(F.input_file_name().alias("file"), F.lit(0).alias("split"), F.posexplode(found))
    named = stretch.select("file", "split", F.col("pos").cast("bigint").alias("record"), F.col("col").alias("value"))
    return _placed(spark, named.where("length(trim(value)) > 0"), numbers)


def container_records(spark: SparkSession, numbers: Mapping[str, int], files: Sequence[str], schema: str) -> DataFrame:
    """Return records of Avro's container files: columns of ``lines``, the value as JSON, and ``content``, the record.

    :param numbers: number of every file of the batch.
    :param files: those to read.
    :param schema: the schema to read them by, JSON.
    """
    rows = spark.read.format("avro").option("avroSchema", schema).load(_paths(files))
    record = F.struct(*[F.col(quoted_column(name)) for name in rows.columns]).alias("content")
    placed = rows.select(record, *_where()).withColumn("value", F.to_json("content", {"ignoreNullFields": "false"}))
    return _placed(spark, placed, numbers, "content")


def cells_of_files(
    spark: SparkSession, numbers: Mapping[str, int], source: FilesSource, known: Mapping[str, str]
) -> Cells:
    """Return the rows of files, their columns told apart.

    :param numbers: number of every file of the batch.
    :param known: types of the table's columns.
    """
    if source.format == "parquet":
        return _parquet(spark, numbers)
    if source.format == "xml":
        assert source.xml
        found = stretches(spark, numbers, elements.record_pattern(source.xml.row_tag))
        messages = from_values(found.where(~elements.is_comment("value")))
        return read_cells(messages, source, known, elements.schema_of(spark, _paths(list(numbers)), source.xml))
    if source.format == "text":
        return read_cells(from_values(lines(spark, numbers)), source, known)
    return read_cells(_csv(spark, numbers, source), source, known)


def _csv(spark: SparkSession, numbers: Mapping[str, int], source: FilesSource) -> DataFrame:
    settings = delimited.settings_of(source)

    def read(files: Sequence[str] | None = None) -> DataFrame:
        pattern = delimited.record_pattern(settings)
        found = stretches(spark, numbers, pattern, files) if settings.multiline else lines(spark, numbers, files)
        return _without(found, settings.comment) if settings.comment else found

    if not settings.header:
        return from_values(read())
    groups: dict[str, list[str]] = {}
    header = F.min_by("value", "arrival")
    for row in read().groupBy("file").agg(header.alias("header"), F.is_valid_utf8(header).alias("is_text")).collect():
        if not row["is_text"]:
            raise InputError(
                f"The header of {row['file']} is no UTF-8.", hint="Convert the file, such as with iconv -t UTF-8."
            )
        groups.setdefault(row["header"], []).append(row["file"])
    frames = [delimited.with_header(from_values(read(sorted(files))), h) for h, files in sorted(groups.items())]
    if not frames:
        return from_values(read())
    first = frames[0]
    for other in frames[1:]:
        first = first.unionAll(other)
    return first


def _without(records: DataFrame, comment: str) -> DataFrame:
    """Return records that do not begin as comments do; what is no text is none."""
    return records.where(~F.col("value").startswith(comment) | ~F.is_valid_utf8("value"))


def _parquet(spark: SparkSession, numbers: Mapping[str, int]) -> Cells:
    try:
        rows = spark.read.option("mergeSchema", "true").parquet(*_paths(list(numbers)))
    except Exception as error:
        said = _said(error)
        for name in numbers:
            _refuse_damaged(spark, name)
        raise InputError(
            f"The Parquet files cannot be read together: {said}",
            hint="Take out what is none. Where their types differ, feed the older files first, with a path or "
            "max_files_per_run of their own.",
        ) from error
    cells = F.struct(*[F.col(quoted_column(name)) for name in rows.columns]).alias("cells")
    placed = _arranged(spark, rows.select(cells, *_where()), numbers, "cells", "file AS source")
    return typed_cells(placed, tuple(change.Column(name, kind) for name, kind in sql_types(rows).items()))


def _refuse_damaged(spark: SparkSession, name: str) -> None:
    """Find out whether a Parquet file can be read at all; Spark does not name the one of many that cannot."""
    try:
        spark.read.parquet(*_paths([name]))
    except Exception as error:
        raise InputError(
            f"The Parquet file {name} cannot be read: {_said(error)}", hint="Mend it, or take it out of the folder."
        ) from error


def _said(error: Exception) -> str:
    told = explain(error)
    return told.text if told else str(error).splitlines()[0]


def _where() -> list[Column]:
    """Where Spark's reader stands: file, split and record in the task."""
    split = F.shiftright(F.input_file_block_start(), _SPLIT_UNIT)
    record = F.monotonically_increasing_id()
    return [F.input_file_name().alias("file"), split.alias("split"), record.alias("record")]


def _placed(spark: SparkSession, records: DataFrame, numbers: Mapping[str, int], *more: str) -> DataFrame:
    return _arranged(spark, records, numbers, "file", "value", place_sql("file"), *more)


def _arranged(spark: SparkSession, records: DataFrame, numbers: Mapping[str, int], *more: str) -> DataFrame:
    """Return records with ``arrival``, and what is named."""
    arrival = (
        f"shiftleft(number, {_SPLIT_BITS + _RECORD_BITS}) + shiftleft(CAST(split AS bigint), {_RECORD_BITS}) "
        f"+ (record & {(1 << _RECORD_BITS) - 1}L) AS arrival"
    )
    return records.join(_numbered(spark, numbers), "file").selectExpr(arrival, *more)


def _numbered(spark: SparkSession, numbers: Mapping[str, int]) -> DataFrame:
    """Return the files of a batch with their numbers, for a join."""
    return F.broadcast(local_relation(spark, list(numbers.items()), "file string, number bigint"))


def _paths(files: Sequence[str]) -> list[str]:
    """URIs as Spark's readers take paths: not encoded, and without the signs of globs."""
    escapes = str.maketrans({sign: f"\\{sign}" for sign in "\\[]{}*?"})
    return [unquote(name).translate(escapes) for name in files]
