"""Measure the live files of a table from its manifests, in Spark tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.iceberg.definition import unpartitioned_specs
from lakecdc.iceberg.sort_order import SortField, SortOrder
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.file_facts import Content, LiveFile, Partitions, by_partition
from lakecdc.metadata.names import PATH_ID
from lakecdc.metadata.overlap import ColumnBounds
from lakecdc.sql import quoted_column


def measure(table: IcebergTable, snapshot_id: int, order: SortOrder) -> Partitions:
    """Return the facts of a snapshot's live data files, with ranges in an order, by partition spec and partition."""
    (files,) = live_files(table, [snapshot_id], order.fields)
    return by_partition(files)


def live_files(table: IcebergTable, snapshot_ids: Sequence[int], fields: Sequence[SortField]) -> list[list[LiveFile]]:
    """Return the live files of several snapshots, with their bounds in some columns.

    One query reads them all, because starting one takes longer than reading the manifests of most tables.
    """
    frames = [_live_entries(table, id, fields).withColumn("nth", F.lit(n)) for n, id in enumerate(snapshot_ids)]
    unpartitioned = unpartitioned_specs(table)
    files: list[list[LiveFile]] = [[] for _ in snapshot_ids]
    for row in reduce(DataFrame.unionByName, frames).collect():
        files[row.nth].append(_live_file(row, unpartitioned))
    return files


def _live_file(row: Any, unpartitioned: Collection[int]) -> LiveFile:
    content = _content(row)
    everywhere = content is Content.EQUALITY_DELETES and row.spec_id in unpartitioned
    return LiveFile(
        content,
        None if everywhere else (row.spec_id, row.partition),
        row.file_size_in_bytes,
        row.record_count,
        row.sequence_number or 0,
        row.file_path if content is Content.DATA else row.referenced,
        row.file_path if content is Content.DELETION_VECTOR else None,
        row.data_bytes or 0,
        row.snapshot_id or 0,
        tuple(
            ColumnBounds(_hashable(c.lower), _hashable(c.upper), bool(c.only_nulls), bool(c.complete))
            for c in row.bounds[1:]
        ),
    )


def _content(row: Any) -> Content:
    if row.content == 1:
        return Content.DELETION_VECTOR if row.file_format.upper() == "PUFFIN" else Content.POSITION_DELETES
    return Content.DATA if row.content == 0 else Content.EQUALITY_DELETES


def _live_entries(table: IcebergTable, snapshot_id: int, fields: Sequence[SortField]) -> DataFrame:
    entries = table.metadata("entries", snapshot_id).where("status < 2")
    bounds = [_bounds(entries.schema, field) for field in fields]
    partitioned = "partition" in _fields(entries.schema, "data_file")
    return entries.select(
        "snapshot_id",
        "sequence_number",
        "data_file.content",
        "data_file.file_format",
        "data_file.file_path",
        "data_file.spec_id",
        (F.to_json("data_file.partition") if partitioned else F.lit("{}")).alias("partition"),
        "data_file.file_size_in_bytes",
        F.expr("aggregate(map_values(data_file.column_sizes), 0L, (a, b) -> a + b)").alias("data_bytes"),
        "data_file.record_count",
        F.expr(referenced_file(entries.schema)).alias("referenced"),
        # a struct, because an array would need one common type
        F.struct(F.lit(0), *(F.expr(sql).alias(f"c{n}") for n, sql in enumerate(bounds))).alias("bounds"),
    )


def _hashable(bound: Any) -> Any:
    return bytes(bound) if isinstance(bound, bytearray) else bound


def _fields(schema: Any, column: str) -> list[str]:
    return list(schema[column].dataType.names)


def referenced_file(schema: Any) -> str:
    """Return SQL of the one data file that a position-delete file references; equal bounds of its paths show it too."""
    lower, upper = (f"data_file.{side}_bounds[{PATH_ID}]" for side in ("lower", "upper"))
    from_bounds = f"if({lower} = {upper}, cast({lower} as string), null)"
    if "referenced_data_file" in _fields(schema, "data_file"):
        return f"coalesce(data_file.referenced_data_file, {from_bounds})"
    return from_bounds


def _bounds(schema: Any, field: SortField) -> str:
    """Return SQL of a sort field's lowest and highest value, and whether all values are null."""
    unknown = "named_struct('lower', null, 'upper', null, 'only_nulls', false, 'complete', false)"
    if not field.keeps_order or "readable_metrics" not in schema.names:
        return unknown
    metrics = schema["readable_metrics"].dataType
    if field.column not in metrics.names:
        return unknown
    kind = metrics[field.column].dataType["lower_bound"].dataType.typeName()
    value = f"readable_metrics.{quoted_column(field.column)}"
    lower, upper = field.of(f"{value}.lower_bound"), field.of(f"{value}.upper_bound")
    if kind == "timestamp" and field.transform == "identity":
        # Python's local time is not monotonic when clocks are set back
        lower, upper = f"unix_micros({lower})", f"unix_micros({upper})"
    nulls = f"{value}.null_value_count = {value}.value_count"
    complete = f"{value}.null_value_count + coalesce({value}.nan_value_count, 0) = 0"
    return f"named_struct('lower', {lower}, 'upper', {upper}, 'only_nulls', {nulls}, 'complete', {complete})"
