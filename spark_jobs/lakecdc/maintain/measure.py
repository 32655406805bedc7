"""What the metadata says about each data file: size, deleted rows, where it lies in the sort order."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.definition import unpartitioned_specs
from lakecdc.maintain.overlap import Box, ColumnBounds, KeyRange, column_range, lexicographic_ends
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.sort_order import SortField, SortOrder
    from lakecdc.iceberg.table import IcebergTable

#: field id of ``file_path`` in position-delete files (Iceberg specification, reserved field ids)
_PATH_ID = 2147483546


@dataclass(frozen=True)
class FileFacts:
    """One live data file.

    :param spec_id: its partition spec.
    :param partition: its partition tuple as JSON; with the spec id the name of its partition.
    :param bytes: file size.
    :param data_bytes: the part of it that is columns, without footer and indexes.
    :param rows: rows in it, deleted ones included.
    :param deleted: rows that position deletes and deletion vectors of this very file delete.
    :param lower: where it begins in the measured order, None if unknown.
    :param upper: where it ends.
    :param keyless: the columns of the order are null in every row.
    :param added_by: snapshot that added the file.
    :param sequence: data sequence number.
    :param equality_deletes: equality-delete files that apply to it, by partition and sequence number alone.
    :param box: where it lies in each column of the order by itself.
    :param bounded: no row lies outside the bounds, in any column of the order.
    """

    location: str
    spec_id: int
    partition: str
    bytes: int
    data_bytes: int
    rows: int
    deleted: int = 0
    lower: Any = None
    upper: Any = None
    keyless: bool = False
    added_by: int = 0
    sequence: int = 0
    equality_deletes: int = 0
    box: Box = ()
    bounded: bool = False

    @property
    def delete_ratio(self) -> float:
        """Deleted rows per row, at most 1."""
        return min(self.deleted / self.rows, 1.0) if self.rows else 0.0

    @property
    def live_bytes(self) -> float:
        """Estimate of what its live rows take in another file."""
        return self.data_bytes * (1.0 - self.delete_ratio)

    @property
    def key_range(self) -> KeyRange:
        """Where the file lies in the measured order."""
        return KeyRange(self.lower, self.upper, self.rows)


Partitions = dict[tuple[int, str], list[FileFacts]]


def measure(table: IcebergTable, snapshot_id: int, order: SortOrder) -> Partitions:
    """Facts of every live data file, by partition spec and partition.

    :param snapshot_id: the state to measure.
    :param order: where files lie in it is wanted.
    """
    (rows,) = live_entries(table, [snapshot_id], order.fields)
    return by_partition(rows, unpartitioned_specs(table))


def live_entries(table: IcebergTable, snapshot_ids: Sequence[int], fields: Sequence[SortField]) -> list[list[Any]]:
    """For each of some snapshots, a row for each live file, delete files included, with its bounds in some columns.

    They are read by one query, since to begin one takes longer than to read the manifests of most tables.

    :param fields: the columns.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    frames = [_live_entries(table, id, fields).withColumn("nth", F.lit(n)) for n, id in enumerate(snapshot_ids)]
    found: list[list[Any]] = [[] for _ in snapshot_ids]
    for row in reduce(DataFrame.unionByName, frames).collect():
        found[row.nth].append(row)
    return found


def _live_entries(table: IcebergTable, snapshot_id: int, fields: Sequence[SortField]) -> DataFrame:
    from pyspark.sql import functions as F

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
        F.expr(_referenced(entries.schema)).alias("referenced"),
        # members of a struct, since an array would make one type of all
        F.struct(F.lit(0), *(F.expr(sql).alias(f"c{n}") for n, sql in enumerate(bounds))).alias("bounds"),
    )


def by_partition(rows: Sequence[Any], unpartitioned: Collection[int], of_order: slice = slice(None)) -> Partitions:
    """Facts of the data files among a snapshot's live files.

    :param unpartitioned: specs whose equality deletes apply to every partition (Iceberg specification, scan planning).
    :param of_order: which of the columns that have bounds make the order in which files lie.
    """
    deleted: dict[str, int] = defaultdict(int)
    by_key: dict[tuple[int, str] | None, list[int]] = defaultdict(list)
    for row in rows:
        if row.content == 1 and row.referenced:
            deleted[row.referenced] += row.record_count
        elif row.content == 2:
            by_key[None if row.spec_id in unpartitioned else (row.spec_id, row.partition)].append(row.sequence_number)
    for numbers in by_key.values():
        numbers.sort()
    found: Partitions = defaultdict(list)
    for row in rows:
        if row.content == 0:
            key, sequence = (row.spec_id, row.partition), row.sequence_number or 0
            columns = [
                ColumnBounds(_hashable(c.lower), _hashable(c.upper), bool(c.only_nulls), bool(c.complete))
                for c in row.bounds[1:][of_order]
            ]
            lower, upper = lexicographic_ends(columns)
            facts = FileFacts(
                row.file_path,
                row.spec_id,
                row.partition,
                row.file_size_in_bytes,
                row.data_bytes or row.file_size_in_bytes,
                row.record_count,
                deleted[row.file_path],
                lower,
                upper,
                bool(columns) and all(c.only_nulls for c in columns),
                row.snapshot_id or 0,
                sequence,
                _above(by_key.get(key), sequence) + _above(by_key.get(None), sequence),
                tuple(column_range(c, row.record_count) for c in columns),
                bool(columns) and all(c.known and c.complete for c in columns),
            )
            found[key].append(facts)
    return dict(found)


def _above(numbers: Sequence[int] | None, sequence: int) -> int:
    """How many of ascending sequence numbers are above one."""
    return len(numbers) - bisect.bisect_right(numbers, sequence) if numbers else 0


def _hashable(bound: Any) -> Any:
    return bytes(bound) if isinstance(bound, bytearray) else bound


def _fields(schema: Any, column: str) -> list[str]:
    return list(schema[column].dataType.names)


def _referenced(schema: Any) -> str:
    """SQL of the one data file a position-delete file refers to: written down, or the same path as both bounds."""
    lower, upper = (f"data_file.{side}_bounds[{_PATH_ID}]" for side in ("lower", "upper"))
    from_bounds = f"if({lower} = {upper}, cast({lower} as string), null)"
    if "referenced_data_file" in _fields(schema, "data_file"):
        return f"coalesce(data_file.referenced_data_file, {from_bounds})"
    return from_bounds


def _bounds(schema: Any, field: SortField) -> str:
    """SQL of the lowest and the highest value of a sort field, and whether it holds nothing but nulls."""
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
        # Python's local time is not in the order of the moments where clocks are put back
        lower, upper = f"unix_micros({lower})", f"unix_micros({upper})"
    nulls = f"{value}.null_value_count = {value}.value_count"
    complete = f"{value}.null_value_count + coalesce({value}.nan_value_count, 0) = 0"
    return f"named_struct('lower', {lower}, 'upper', {upper}, 'only_nulls', {nulls}, 'complete', {complete})"
