"""Separate data files by time: which lie entirely before a time, and where the table can be cut."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from lakecdc.iceberg.partition_fields import PartitionField, partition_fields
from lakecdc.iceberg.table import Field, IcebergTable
from lakecdc.sql import quoted_column

Unit = Literal["hour", "day", "month", "year"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


@dataclass(frozen=True)
class FileTimes:
    """Time range of a data file in microseconds since 1970, UTC; ``nulls``: some rows may have no time."""

    rows: int
    bytes: int
    lower: int | None
    upper: int | None
    nulls: bool = False

    @property
    def first(self) -> float:
        """Return the earliest possible time of its oldest row."""
        return -math.inf if self.lower is None else self.lower

    @property
    def last(self) -> float:
        """Return the latest possible time of its rows; infinite if a row has no time, because such rows stay."""
        return math.inf if self.upper is None or self.nulls else self.upper


@dataclass(frozen=True)
class Cut:
    """A cut through a table's time range.

    :param below: all rows before this time are removed; None: no rows.
    :param whole: removed files.
    :param mixed: files with rows on both sides of the cut.
    :param partitions: number of time units that lose rows.
    :param left: number of time units before the cutoff that are left to later runs.
    """

    below: int | None
    whole: tuple[FileTimes, ...]
    mixed: tuple[FileTimes, ...]
    partitions: int
    left: int


def between_files(files: Iterable[FileTimes], cutoff: int, unit: Unit, most: int) -> Cut:
    """Choose the boundary between files nearest to a cutoff.

    :param most: maximum number of partitions to remove, oldest first; one more if the files cannot be separated
        otherwise.
    :return: its mixed files lie across the cutoff, or cannot be separated from such files.
    """
    groups = _groups(file for file in files if file.first < cutoff)
    chosen: list[FileTimes] = []
    units: set[int] = set()
    for number, group in enumerate(groups):
        more = units | _units(group, unit)
        full = bool(chosen) and len(more) > most
        if full or max(file.last for file in group) >= cutoff:
            rest = [file for later in groups[number:] for file in later]
            left = _units(rest, unit) - units if full else ()
            below = _between(chosen, group[0], unit) if chosen else None
            return Cut(below, tuple(chosen), () if full else tuple(rest), len(units), len(left))
        chosen += group
        units = more
    return Cut(cutoff if chosen else None, tuple(chosen), (), len(units), 0)


def through_files(files: Collection[FileTimes], cutoff: int, unit: Unit, most: int) -> Cut:
    """Cut at a cutoff, or further back to remove at most ``most`` partitions; files may lie on both sides."""
    older = [file for file in files if file.first < cutoff]
    units = sorted(_units(older, unit))
    below = units[most] if len(units) > most else cutoff
    older = [file for file in older if file.first < below]
    whole = tuple(file for file in older if file.last < below)
    mixed = tuple(file for file in older if file.last >= below)
    return Cut(below if older else None, whole, mixed, len(units[:most]), len(units[most:]))


def _between(before: Iterable[FileTimes], after: FileTimes, unit: Unit) -> int:
    assert after.lower is not None
    begin = unit_of(after.lower, unit)
    return begin if begin > max(file.last for file in before) else after.lower


def _units(files: Iterable[FileTimes], unit: Unit) -> set[int]:
    return {unit_of(file.lower, unit) for file in files if file.lower is not None}


def unit_of(time: int, unit: Unit) -> int:
    """Return the start of the hour, day, month or year of a time."""
    moment = moment_of(time).replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        moment = moment.replace(hour=0)
    if unit in ("month", "year"):
        moment = moment.replace(day=1)
    return time_of(moment.replace(month=1) if unit == "year" else moment)


def moment_of(time: int) -> datetime:
    """Convert a time to a Python datetime, clamped to the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return (datetime.min if time < 0 else datetime.max).replace(tzinfo=UTC)


def time_of(moment: datetime) -> int:
    """Convert a datetime with a zone to microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _groups(files: Iterable[FileTimes]) -> list[list[FileTimes]]:
    groups: list[list[FileTimes]] = []
    end = -math.inf
    for file in sorted(files, key=lambda file: file.first):
        if groups and file.first <= end:
            groups[-1].append(file)
        else:
            groups.append([file])
        end = max(end, file.last)
    return groups


def time_partitions(table: IcebergTable, column: Field) -> dict[int, PartitionField]:
    """Return, by spec id, the field that partitions by a date or timestamp; other fields and buckets are ignored."""
    return {
        spec_id: field
        for spec_id, fields in partition_fields(table).items()
        for field in fields
        if field.source_id == column.id and field.transform in _OF_PARTITION
    }


def file_times(table: IcebergTable, column: Field, snapshot_id: int, before: int) -> list[FileTimes]:
    """Return the live data files that may have rows before a time in microseconds since 1970, UTC."""
    files = table.metadata("files", snapshot_id).where("content = 0")
    times = files.selectExpr("record_count", "file_size_in_bytes", *_measures(table, column, files.schema))
    times = times.where(f"NOT none AND coalesce(lower < {before}, true)").drop("none")
    return [FileTimes(*row) for row in times.collect()]


def _measures(table: IcebergTable, column: Field, schema: Any) -> list[str]:
    """Return SQL columns of a file's first and last time, and whether some or all rows lack a time."""
    metrics = schema["readable_metrics"].dataType if "readable_metrics" in schema.names else None
    bounds = metrics is not None and column.name in metrics.names
    measured = f"readable_metrics.{quoted_column(column.name)}"
    specs = time_partitions(table, column) if "partition" in schema.names else {}
    values = {spec: (f"partition.{quoted_column(field.name)}", field.transform) for spec, field in specs.items()}

    def of_spec(by_spec: dict[int, str], otherwise: str) -> str:
        cases = " ".join(f"WHEN spec_id = {n} THEN {sql}" for n, sql in by_spec.items())
        return f"CASE {cases} ELSE {otherwise} END" if cases else otherwise

    ends = []
    for number, side in enumerate(("lower", "upper")):
        bound = f"unix_micros(CAST({measured}.{side}_bound AS timestamp))" if bounds else "NULL"
        sql = {spec: _OF_PARTITION[how][number].format(value) for spec, (value, how) in values.items()}
        ends.append(f"CAST(coalesce({bound}, {of_spec(sql, 'NULL')}) AS bigint) AS {side}")
    empty = of_spec({spec: f"{value} IS NULL" for spec, (value, _) in values.items()}, "NULL")
    nulls, none = f"coalesce({empty}, true)", f"coalesce({empty}, false)"
    if bounds:
        nulls = f"coalesce({measured}.null_value_count > 0, {nulls})"
        none = f"coalesce({measured}.null_value_count = {measured}.value_count, {none})"
    return [*ends, f"{nulls} AS nulls", f"{none} AS none"]
