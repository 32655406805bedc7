"""Compare a table with its source table: hashes of key ranges, then the rows of ranges that differ.

Ranges cut the leading key column if the source orders it the same way, else a hash of the key.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import ORDER_PREFIX
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition, widening
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.api import (
    Batch,
    KeyCondition,
    KeyRange,
    Rows,
    SourceTable,
    clean_for_table,
    key_number,
    key_value_text,
    source_types,
)
from lakecdc.local_relation import local_relation
from lakecdc.maintain.verify_rows import NO_ROWS, Fingerprint, Proof, fingerprint
from lakecdc.metadata.positions import Position
from lakecdc.model.merge_slots import DELETED
from lakecdc.sql import exact_json, exact_value, holds, quoted_column


@dataclass(frozen=True)
class Pair:
    """Both sides of a comparison.

    :param types: of the columns on both sides, key first: types that hold the values of both.
    :param alone: columns on one side only.
    :param fed: condition for the table's rows that the source table feeds, if it feeds one group of columns.
    """

    table: IcebergTable
    target: Target
    source: SourceTable
    key: tuple[str, ...]
    types: dict[str, str]
    alone: tuple[str, ...]
    fed: str

    def leading(self) -> KeyCondition | None:
        """Return the leading key column, if both sides order it the same way."""
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

    def table_rows(self, snapshot: int | None, condition: KeyCondition | None) -> DataFrame:
        """Read the table's rows, possibly more than match a condition."""
        rows = self.table.read(snapshot, where=condition.in_spark() if condition else "true").where(self.fed)
        return rows.select(*[F.col(quoted_column(name)).cast(kind).alias(name) for name, kind in self.types.items()])

    @contextmanager
    def source_rows(self, condition: KeyCondition | None) -> Iterator[tuple[DataFrame, int]]:
        """Read the source's rows as ingestion would write them, and count unreadable rows; valid inside the context."""
        with self.source.rows(self.at_source(condition)) as read:
            batch = replace(_batch(self.target, self.source), rows=Rows(read.changes))
            rows = clean_for_table(self.table, batch).rows
            assert rows is not None
            row = F.col("row")
            values = [row[name].cast(kind).alias(name) for name, kind in self.types.items()]
            yield rows.frame.where(row.isNotNull()).select(*values), read.unreadable


def pair(table: IcebergTable, target: Target, source: SourceTable) -> Pair:
    """Match a table with its source table; refuse different keys, and types that cannot be compared."""
    merge = definition.merge_of(table)
    # a merged table has one group of columns for each of its source tables
    group = merge.group_of(target.source_name) if merge else None
    if group is None:
        definition.refuse_merged(table, "the source table feeds no group of columns to compare")
    batch = clean_for_table(table, _batch(target, source))
    theirs, ours = {c.name: c.type for c in batch.columns}, source_types(table, target)
    if group is not None:
        ours = {name: kind for name, kind in ours.items() if name in (*batch.key, *group.columns)}
    missing = [name for name in batch.key if name not in ours]
    if missing:
        raise InputError(f"Key column {missing[0]!r} is missing from the table.", table=table.name)
    names = [*batch.key, *(name for name in ours if name in theirs and name not in batch.key)]
    types = {name: _common(table.name, name, ours[name], theirs[name]) for name in names}
    order = quoted_column(f"{ORDER_PREFIX}{group.title}") if group else None
    fed = f"{order} IS NOT NULL AND NOT endswith({order}, '{DELETED}')" if order else "true"
    return Pair(table, target, source, batch.key, types, tuple(sorted({*ours} ^ {*theirs})), fed)


def _batch(target: Target, source: SourceTable) -> Batch:
    clean = replace(target.clean, event_time=None, lateness_seconds=0.0) if target.clean else None
    return Batch(replace(target, clean=clean), source.key, source.columns, None, Position("", ""), full_load=True)


def _common(table: str, column: str, ours: str, theirs: str) -> str:
    """Return a common type to compare the values of both sides in."""
    if widening.holds(ours, theirs):
        return ours
    if widening.holds(theirs, ours):
        return theirs
    raise InputError(
        f"Cannot compare column {column!r}: it is {theirs} at the source and {ours} in the table.",
        table=table,
        hint=f'Give the source\'s column a type with "columns": {{"{column}": "{ours}"}} of its target, or leave it '
        'out with "exclude_columns".',
    )


#: ``missing`` from the table, ``unexpected`` in it, with ``different`` values, or more than once on one side
Kind = Literal["missing", "unexpected", "different", "duplicate"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SIDE, _RANGE, _HASH, _KEY = "_lakecdc_side", "_lakecdc_range", "_lakecdc_hash", "_lakecdc_key"
_SOURCE, _TABLE = 0, 1
_ROW = ("_lakecdc_row_0", "_lakecdc_row_1")
# aggregates of the hashes of a key's rows on one side: small for rows of any size
_STATE = {"count": F.count, "min": F.min, "max": F.max}
# types that the two sides may write differently, or that Spark cannot compare
_NESTED = ("array", "map", "struct", "variant")
# enough for 256 ranges of roughly equal size
_SAMPLED_ROWS = 500_000


@dataclass(frozen=True)
class KeyRanges:
    """The ranges of a table's keys.

    :param number: SQL of a row's number.
    :param bounds: the first number of each range but the first.
    :param condition: the leading key column with all ranges; None for ranges of a hash, which cannot be pushed down.
    """

    number: str
    bounds: tuple[int, ...]
    condition: KeyCondition | None

    def __len__(self) -> int:
        return len(self.bounds) + 1

    def range_of_row(self) -> str:
        """Return SQL of a row's range, counted from 0."""
        return self._search(0, len(self.bounds))

    def _search(self, low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        above, below = self._search(middle + 1, high), self._search(low, middle)
        return f"IF({self.number} >= CAST('{self.bounds[middle]}' AS bigint), {above}, {below})"

    def ends(self, place: int) -> KeyRange:
        """Return the numbers at which a range begins and ends."""
        ends = [None, *self.bounds, None]
        return KeyRange(ends[place], ends[place + 1])

    def ends_as_text(self, place: int) -> tuple[str | None, str | None]:
        """Return the ends of a range as values of the leading key column, or numbers of a hash."""
        kind, ends = self.condition.kind if self.condition else "bigint", self.ends(place)
        low, high = (None if number is None else key_value_text(number, kind) for number in (ends.low, ends.high))
        return low, high

    def sample(self, share: float, seed: int) -> list[int]:
        """Choose some of the ranges, at least one, in order."""
        count = max(1, round(len(self) * share))
        return sorted(random.Random(seed).sample(range(len(self)), count))

    def some(self, places: Sequence[int]) -> KeyCondition | None:
        """Return the condition for some ranges; None for all rows."""
        if self.condition is None or len(places) == len(self):
            return None
        return replace(self.condition, ranges=tuple(map(self.ends, places)))

    def keys(self, numbers: Sequence[int | None]) -> KeyCondition | None:
        """Return the condition for rows with these numbers; None for all rows."""
        if self.condition is None or None in numbers:
            return None
        known = sorted({number for number in numbers if number is not None})
        return replace(self.condition, ranges=tuple(KeyRange(number, number + 1) for number in known))


def cut(rows: DataFrame, count: int, key: Sequence[str], column: KeyCondition | None, most: int) -> KeyRanges:
    """Cut the keys of a table into at most ``most`` ranges of roughly equal size; large tables are sampled."""
    number = key_number(column.column, column.kind) if column else None
    if number is None:
        column = None
        number = f"xxhash64({', '.join(map(quoted_column, key))})"
    if count > _SAMPLED_ROWS:
        rows = rows.sample(_SAMPLED_ROWS / count, seed=0)
    shares = ", ".join(f"{place / most}D" for place in range(1, most))
    quantiles = rows.selectExpr(f"percentile_approx({number}, array({shares}))").first() if shares else None
    bounds = tuple(sorted({int(bound) for bound in (quantiles[0] if quantiles else None) or ()}))
    return KeyRanges(number, bounds, column)


@dataclass(frozen=True)
class Difference:
    """A row that differs.

    :param key: hash of its key.
    :param number: of its key (see :class:`KeyRanges`); None if it is null.
    :param columns: those that differ, if the row exists once on both sides.
    :param source: hash of the source's values, 0 if it has none.
    :param table: hash of the table's values, 0 if it has none.
    """

    key: int
    key_text: str
    range: int
    number: int | None
    kind: Kind
    columns: tuple[str, ...]
    source: int
    table: int


@dataclass(frozen=True)
class Differences:
    """Result of comparing rows: differing rows by the hash of their key, or just counts if they are too many."""

    rows: Mapping[int, Difference] = field(default_factory=dict)
    counts: Mapping[Kind, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Comparison:
    """A pair of tables with its key ranges."""

    pair: Pair
    ranges: KeyRanges

    def digests(
        self, snapshot: int | None, places: Collection[int]
    ) -> tuple[dict[int, tuple[Fingerprint, Fingerprint]], int]:
        """Hash some ranges of both sides in one pass, and count the source rows that cannot be read."""
        condition, proof = self.ranges.some(sorted(places)), Proof(tuple(self.pair.types), "all columns")
        with self._rows(snapshot, condition) as (both, unreadable):
            rows = _canonical(self._within(both, places), self.pair.types)
            grouped = proof.hashed(rows).groupBy(_RANGE, _SIDE)
            hashes = {(row[_RANGE], row[_SIDE]): fingerprint(row) for row in grouped.agg(*proof.measures()).collect()}

        def digest(place: int, side: int) -> Fingerprint:
            return hashes.get((place, side), NO_ROWS)

        return {place: (digest(place, _SOURCE), digest(place, _TABLE)) for place in places}, unreadable

    def differences_in(self, places: Collection[int], most: int) -> Differences:
        """Return the rows of some ranges that differ now, without columns; only count them if more than ``most``."""
        with self._newest(self.ranges.some(sorted(places))) as rows:
            return self._differing(self._within(rows, places), most=most)

    def differences_of(self, known: Collection[Difference]) -> Differences:
        """Return the known differences that still exist."""
        with self._newest(self.ranges.keys([each.number for each in known])) as rows:
            return self._differing(self.only(rows, known, self._key()), columns=True)

    def only(self, rows: DataFrame, known: Collection[Difference], key: Sequence[Column]) -> DataFrame:
        """Select the rows with the keys of known differences; ``key`` has the values of the key columns in ``rows``."""
        keys = local_relation(self.pair.table.spark, [(each.key,) for each in known], f"{_KEY} bigint")
        typed = [value.cast(self.pair.types[name]) for name, value in zip(self.pair.key, key, strict=True)]
        return rows.join(F.broadcast(keys), _key_hash(typed) == keys[_KEY], "left_semi")

    @contextmanager
    def _rows(self, snapshot: int | None, condition: KeyCondition | None) -> Iterator[tuple[DataFrame, int]]:
        """Read both sides, and count the source rows that cannot be read; valid inside the context."""
        place = F.expr(self.ranges.range_of_row()).alias(_RANGE)
        with self.pair.source_rows(condition) as (source, unreadable):
            table = self.pair.table_rows(snapshot, condition).select("*", F.lit(_TABLE).alias(_SIDE), place)
            yield source.select("*", F.lit(_SOURCE).alias(_SIDE), place).unionByName(table), unreadable

    @contextmanager
    def _newest(self, condition: KeyCondition | None) -> Iterator[DataFrame]:
        head = self.pair.table.refresh().head()
        with self._rows(head.id if head else None, condition) as (rows, _unreadable):
            yield rows

    def _within(self, rows: DataFrame, places: Collection[int]) -> DataFrame:
        # a filter makes Spark compute each row's range twice, because it is pushed below the union
        return rows if len(places) == len(self.ranges) else rows.where(F.col(_RANGE).isin([*places]))

    def _key(self) -> list[Column]:
        return [F.col(quoted_column(name)) for name in self.pair.key]

    def _differing(self, rows: DataFrame, *, most: int | None = None, columns: bool = False) -> Differences:
        """Select the rows that differ; with ``columns`` all values are shuffled instead of hashes."""
        types, key = self.pair.types, [quoted_column(name) for name in self.pair.key]
        hashed = Proof(tuple(types), "all columns").hashed(_canonical(rows, types))
        compared = [name for name in types if name not in self.pair.key] if columns else []
        by_key = hashed.groupBy(*key, _RANGE).agg(*_states(), *_values(compared))
        there, here = (F.col(f"_lakecdc_count_{side}") for side in (_SOURCE, _TABLE))
        kind = (
            F.when((there > 1) | (here > 1), "duplicate")
            .when(here == 0, "missing")
            .when(there == 0, "unexpected")
            .otherwise("different")
        )
        differing = by_key.where(~_state(_SOURCE).eqNullSafe(_state(_TABLE))).select(
            _key_hash(self._key()).alias("key"),
            exact_json(F.struct(*key)).alias("key_text"),
            F.col(_RANGE).alias("range"),
            F.expr(self.ranges.number).alias("number"),
            kind.alias("kind"),
            F.when(kind == "different", _unequal(compared)).alias("columns"),
            F.when(there > 0, F.xxhash64(_state(_SOURCE))).otherwise(0).alias("source"),
            F.when(here > 0, F.xxhash64(_state(_TABLE))).otherwise(0).alias("table"),
        )
        differing.persist()
        try:
            counts = {row["kind"]: row["count"] for row in differing.groupBy("kind").count().collect()}
            few = differing.collect() if most is None or sum(counts.values()) <= most else []
        finally:
            differing.unpersist()
        differences = [Difference(**{**row.asDict(), "columns": tuple(row["columns"] or ())}) for row in few]
        return Differences({each.key: each for each in differences}, {kind: counts.get(kind, 0) for kind in KINDS})


def _key_hash(key: Sequence[Column]) -> Column:
    # xxhash64 skips nulls, see Proof.hashed
    return F.xxhash64(*key, *map(F.isnull, key))


def _states() -> list[Column]:
    """Aggregate a key's rows on each side, for :func:`_state`."""
    aggregates = []
    for side in (_SOURCE, _TABLE):
        value = F.when(F.col(_SIDE) == side, F.col(_HASH))
        aggregates += [aggregate(value).alias(f"_lakecdc_{name}_{side}") for name, aggregate in _STATE.items()]
    return aggregates


def _state(side: int) -> Column:
    return F.struct(*[F.col(f"_lakecdc_{name}_{side}").alias(name) for name in _STATE])


def _values(columns: Sequence[str]) -> list[Column]:
    """Aggregate a key's values on each side, for :func:`_unequal`."""
    if not columns:
        return []
    values = F.struct(*[F.col(quoted_column(name)).alias(f"c{i}") for i, name in enumerate(columns)])
    sides = (_SOURCE, _TABLE)
    return [F.first(F.when(F.col(_SIDE) == side, values), ignorenulls=True).alias(_ROW[side]) for side in sides]


def _unequal(columns: Sequence[str]) -> Column:
    if not columns:
        return F.lit(None).cast("array<string>")
    there, here = F.col(_ROW[_SOURCE]), F.col(_ROW[_TABLE])
    other = [F.when(~there[f"c{i}"].eqNullSafe(here[f"c{i}"]), F.lit(name)) for i, name in enumerate(columns)]
    return F.array_compact(F.array(*other))


def _canonical(rows: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Convert equal nested values to one form: JSON, with map entries in order."""
    nested = {}
    for name in columns:
        if holds(rows.schema[name].dataType, *_NESTED):
            value = F.col(quoted_column(name))
            exact = exact_value(value, rows.schema[name].dataType)
            nested[name] = F.when(value.isNotNull(), exact_json(F.struct(exact.alias("value"))))
    return rows.withColumns(nested) if nested else rows
