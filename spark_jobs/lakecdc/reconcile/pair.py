"""A source table and the table that it feeds, as rows with the same columns and types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable
from lakecdc.iceberg.widening import holds
from lakecdc.ingest.api import (
    Batch,
    KeyCondition,
    Rows,
    SourceTable,
    clean_for_table,
    key_number,
    own_columns,
)
from lakecdc.metadata.positions import Position
from lakecdc.sql import quoted_column


@dataclass(frozen=True)
class Pair:
    """Both sides of a comparison.

    :param types: of the columns on both sides, key first: types that hold the values of both.
    :param alone: columns on one side only.
    """

    table: IcebergTable
    target: Target
    source: SourceTable
    key: tuple[str, ...]
    types: dict[str, str]
    alone: tuple[str, ...]

    def leading(self) -> KeyCondition | None:
        """Return the leading key column, if both sides have it in the same order."""
        name, clean = self.key[0], self.target.clean
        computed = clean is not None and name in clean.compute
        same = self.source.ordered.get(self._at_source(name)) == self.types[name]
        is_own = definition.spark_types(self.table)[name] == self.types[name]
        if computed or not (same and is_own) or key_number(name, self.types[name]) is None:
            return None
        return KeyCondition(name, self.types[name], ())

    def _at_source(self, column: str) -> str:
        renamed = self.target.clean.rename if self.target.clean else {}
        return {new: old for old, new in renamed.items()}.get(column, column)

    def at_source(self, condition: KeyCondition | None) -> KeyCondition | None:
        """Translate a condition to the source's column names."""
        return replace(condition, column=self._at_source(condition.column)) if condition else None

    def table_rows(self, snapshot: int | None, condition: KeyCondition | None = None) -> DataFrame:
        """Read the table's rows, perhaps more than a condition asks for."""
        rows = self.table.read(snapshot, where=condition.in_spark() if condition else "true")
        return rows.select(*[F.col(quoted_column(name)).cast(kind).alias(name) for name, kind in self.types.items()])

    @contextmanager
    def source_rows(self, condition: KeyCondition | None = None) -> Iterator[tuple[DataFrame, int]]:
        """Read the source's rows as ingestion would write them, and count others; valid inside the context."""
        with self.source.rows(self.at_source(condition)) as read:
            batch = replace(_batch(self.target, self.source), rows=Rows(read.changes))
            rows = clean_for_table(self.table, batch).rows
            assert rows is not None
            row = F.col("row")
            values = [row[name].cast(kind).alias(name) for name, kind in self.types.items()]
            yield rows.frame.where(row.isNotNull()).select(*values), read.unreadable


def pair(table: IcebergTable, target: Target, source: SourceTable) -> Pair:
    """Match a table with its source table; refuse other keys, and types that cannot be compared."""
    batch = clean_for_table(table, _batch(target, source))
    theirs, own = {c.name: c.type for c in batch.columns}, {name for name, _, _ in own_columns(target)}
    ours = {name: kind for name, kind in definition.spark_types(table).items() if name not in own}
    missing = [name for name in batch.key if name not in ours]
    if missing:
        raise InputError(f"Key column {missing[0]!r} is missing from the table.", table=table.name)
    names = [*batch.key, *(name for name in ours if name in theirs and name not in batch.key)]
    types = {name: _common(table.name, name, ours[name], theirs[name]) for name in names}
    return Pair(table, target, source, batch.key, types, tuple(sorted({*ours} ^ {*theirs})))


def _batch(target: Target, source: SourceTable) -> Batch:
    clean = replace(target.clean, event_time=None, lateness_seconds=0.0) if target.clean else None
    return Batch(replace(target, clean=clean), source.key, source.columns, None, Position("", ""), full_load=True)


def _common(table: str, column: str, ours: str, theirs: str) -> str:
    """Return a column type in which the values of both sides can be compared."""
    if holds(ours, theirs):
        return ours
    if holds(theirs, ours):
        return theirs
    raise InputError(
        f"Cannot compare column {column!r}: it is {theirs} at the source and {ours} in the table.",
        table=table,
        hint=f'Give the source\'s column a type with "columns": {{"{column}": "{ours}"}} of its target, or leave it '
        'out with "exclude_columns".',
    )
