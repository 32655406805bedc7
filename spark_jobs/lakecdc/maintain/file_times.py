"""Time ranges of data files from metadata: bounds of the column, or else the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.iceberg.partition_fields import PartitionField, partition_fields
from lakecdc.maintain.time_ranges import FileTimes
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from lakecdc.iceberg.table import Field, IcebergTable

_DAY = 86_400_000_000
_MONTHS = "unix_date(add_months(DATE'1970-01-01', {})) * " + f"{_DAY}L"
# first and last microsecond of a partition by its value
_OF_PARTITION = {
    "identity": ("unix_micros(CAST({0} AS timestamp))", "unix_micros(CAST({0} AS timestamp))"),
    "hour": ("{0} * 3600000000L", "({0} + 1) * 3600000000L - 1"),
    "day": (f"unix_date({{0}}) * {_DAY}L", f"(unix_date({{0}}) + 1) * {_DAY}L - 1"),
    "month": (_MONTHS.format("{0}"), _MONTHS.format("{0} + 1") + " - 1"),
    "year": (_MONTHS.format("{0} * 12"), _MONTHS.format("({0} + 1) * 12") + " - 1"),
}


def time_partitions(table: IcebergTable, column: Field) -> dict[int, PartitionField]:
    """Return, by spec id, the field that partitions by a date or timestamp; other fields and buckets are ignored."""
    return {
        spec_id: field
        for spec_id, fields in partition_fields(table).items()
        for field in fields
        if field.source_id == column.id and field.transform in _OF_PARTITION
    }


def file_times(table: IcebergTable, column: Field, snapshot_id: int, before: int) -> list[FileTimes]:
    """Return the live data files that may have rows from before a time.

    Files without any time are skipped.

    :param column: a date or a timestamp.
    :param before: microseconds since 1970, UTC.
    """
    files = table.metadata("files", snapshot_id).where("content = 0")
    lower, upper, nulls, none = _measures(table, column, files.schema)
    times = files.select(
        "record_count",
        "file_size_in_bytes",
        F.expr(lower).alias("lower"),
        F.expr(upper).alias("upper"),
        F.expr(nulls).alias("nulls"),
        F.expr(none).alias("none"),
    )
    times = times.where(f"NOT none AND coalesce(lower < {before}, true)").drop("none")
    return [FileTimes(*row) for row in times.collect()]


def _measures(table: IcebergTable, column: Field, schema: Any) -> tuple[str, str, str, str]:
    """Return SQL of a file's first and last time, whether rows may lack one, and whether all do."""
    metrics = schema["readable_metrics"].dataType if "readable_metrics" in schema.names else None
    bounds = metrics is not None and column.name in metrics.names
    measured = f"readable_metrics.{quoted_column(column.name)}"
    specs = time_partitions(table, column) if "partition" in schema.names else {}
    values = {spec: (f"partition.{quoted_column(field.name)}", field.transform) for spec, field in specs.items()}

    def of_spec(by_spec: dict[int, str], otherwise: str) -> str:
        return (
            " ".join(
                ["CASE", *(f"WHEN spec_id = {n} THEN {sql}" for n, sql in by_spec.items()), f"ELSE {otherwise} END"]
            )
            if by_spec
            else otherwise
        )

    ends = []
    for number, side in enumerate(("lower", "upper")):
        bound = f"unix_micros(CAST({measured}.{side}_bound AS timestamp))" if bounds else "NULL"
        sql = {spec: _OF_PARTITION[how][number].format(value) for spec, (value, how) in values.items()}
        ends.append(f"CAST(coalesce({bound}, {of_spec(sql, 'NULL')}) AS bigint)")
    empty = of_spec({spec: f"{value} IS NULL" for spec, (value, _) in values.items()}, "NULL")
    nulls, none = f"coalesce({empty}, true)", f"coalesce({empty}, false)"
    if bounds:
        nulls = f"coalesce({measured}.null_value_count > 0, {nulls})"
        none = f"coalesce({measured}.null_value_count = {measured}.value_count, {none})"
    return ends[0], ends[1], nulls, none
