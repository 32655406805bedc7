"""Both sides held against each other: hashes of ranges, then the rows of those that differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from pyspark.sql import functions as F

from lakecdc.exact_values import exact_value
from lakecdc.ingest.formats.changes import exact_json
from lakecdc.local_relation import local_relation
from lakecdc.maintain.verify_rows import NO_ROWS, Fingerprint, Proof, fingerprint
from lakecdc.sql import holds, quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.reconcile.pair import Pair
    from lakecdc.reconcile.ranges import KeyRanges

#: ``missing`` from the table, ``unexpected`` in it, there with ``different`` values, or more than once on one side
Kind = Literal["missing", "unexpected", "different", "duplicate"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SIDE, _RANGE, _HASH, _KEY = "_lakecdc_side", "_lakecdc_range", "_lakecdc_hash", "_lakecdc_key"
_SOURCE, _TABLE = 0, 1
_ROW = ("_lakecdc_row_0", "_lakecdc_row_1")
# of the hashes of a key's rows on a side: small however large the rows are
_STATE = {"count": F.count, "min": F.min, "max": F.max}
# what two sides may write in different ways, or what Spark does not compare
_NESTED = ("array", "map", "struct", "variant")


@dataclass(frozen=True)
class Difference:
    """A row that differs.

    :param key: hash of its key.
    :param key_text: its key, JSON.
    :param number: of its key (see :class:`KeyRanges`); None if it is null.
    :param columns: those that differ, if the row is there once on both sides.
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
class Found:
    """What a look at rows has found.

    :param rows: those that differ, by the hash of their key; none if they are too many.
    :param counts: how many differ, by kind.
    """

    rows: Mapping[int, Difference] = field(default_factory=dict)
    counts: Mapping[Kind, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many rows differ."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Comparison:
    """A pair and the ranges of its keys."""

    pair: Pair
    ranges: KeyRanges

    def digests(
        self, snapshot: int | None, places: Collection[int]
    ) -> tuple[dict[int, tuple[Fingerprint, Fingerprint]], int]:
        """Hashes of some ranges at the source and in the table, and how many of the source's rows cannot be read.

        Both sides are read at once.

        :param snapshot: of the table.
        :param places: the ranges.
        """
        wanted, proof = self.ranges.some(sorted(places)), Proof(tuple(self.pair.types), "all columns")
        with self.pair.source_rows(wanted) as (source, unreadable):
            rows = self._within(self._both(source, self.pair.table_rows(snapshot, wanted)), places)
            grouped = proof.hashed(_canonical(rows, self.pair.types)).groupBy(_RANGE, _SIDE)
            found = {(row[_RANGE], row[_SIDE]): fingerprint(row) for row in grouped.agg(*proof.measures()).collect()}

        def digest(place: int, side: int) -> Fingerprint:
            return found.get((place, side), NO_ROWS)

        return {place: (digest(place, _SOURCE), digest(place, _TABLE)) for place in places}, unreadable

    def differences_in(self, snapshot: int | None, places: Collection[int], most: int) -> Found:
        """The rows that differ in some ranges, without their columns.

        :param most: rows; if more differ, they are only counted.
        """
        wanted = self.ranges.some(sorted(places))
        with self.pair.source_rows(wanted) as (source, _unreadable):
            rows = self._within(self._both(source, self.pair.table_rows(snapshot, wanted)), places)
            return self._differing(rows, most=most)

    def differences_of(self, snapshot: int | None, known: Collection[Difference]) -> Found:
        """Those of some rows that differ now.

        :param known: the rows.
        """
        wanted = self.ranges.keys([each.number for each in known])
        with self.pair.source_rows(wanted) as (source, _unreadable):
            both = self._both(source, self.pair.table_rows(snapshot, wanted))
            return self._differing(self.only(both, known, self._key()), columns=True)

    def only(self, rows: DataFrame, known: Collection[Difference], key: Sequence[Column]) -> DataFrame:
        """Rows that have the keys of known ones.

        :param key: values of the key columns in ``rows``.
        """
        keys = local_relation(self.pair.table.spark, [(each.key,) for each in known], f"{_KEY} bigint")
        typed = [value.cast(self.pair.types[name]) for name, value in zip(self.pair.key, key, strict=True)]
        return rows.join(F.broadcast(keys), _key_hash(typed) == keys[_KEY], "left_semi")

    def _both(self, source: DataFrame, table: DataFrame) -> DataFrame:
        place = F.expr(self.ranges.range_of_row()).alias(_RANGE)
        return source.select("*", F.lit(_SOURCE).alias(_SIDE), place).unionByName(
            table.select("*", F.lit(_TABLE).alias(_SIDE), place)
        )

    def _within(self, rows: DataFrame, places: Collection[int]) -> DataFrame:
        """The rows that lie in some ranges."""
        # a filter lets Spark look for each row's range twice, as it comes before the union
        return rows if len(places) == len(self.ranges) else rows.where(F.col(_RANGE).isin([*places]))

    def _key(self) -> list[Column]:
        return [F.col(quoted_column(name)) for name in self.pair.key]

    def _differing(self, rows: DataFrame, *, most: int | None = None, columns: bool = False) -> Found:
        """The rows that differ.

        :param most: rows; if more differ, they are only counted.
        :param columns: tell their columns, for which all values go through the shuffle instead of their hashes.
        """
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
        told = by_key.where(~_state(_SOURCE).eqNullSafe(_state(_TABLE))).select(
            _key_hash(self._key()).alias("key"),
            exact_json(F.struct(*key)).alias("key_text"),
            F.col(_RANGE).alias("range"),
            F.expr(self.ranges.number).alias("number"),
            kind.alias("kind"),
            F.when(kind == "different", _unequal(compared)).alias("columns"),
            F.when(there > 0, F.xxhash64(_state(_SOURCE))).otherwise(0).alias("source"),
            F.when(here > 0, F.xxhash64(_state(_TABLE))).otherwise(0).alias("table"),
        )
        told.persist()
        try:
            counts = {row["kind"]: row["count"] for row in told.groupBy("kind").count().collect()}
            few = told.collect() if most is None or sum(counts.values()) <= most else []
        finally:
            told.unpersist()
        found = [Difference(**{**row.asDict(), "columns": tuple(row["columns"] or ())}) for row in few]
        return Found({each.key: each for each in found}, {kind: counts.get(kind, 0) for kind in KINDS})


def _key_hash(key: Sequence[Column]) -> Column:
    # it skips nulls, as in Proof.hashed
    return F.xxhash64(*key, *map(F.isnull, key))


def _states() -> list[Column]:
    """Aggregates of a key's rows on each side, for :func:`_state`."""
    found = []
    for side in (_SOURCE, _TABLE):
        value = F.when(F.col(_SIDE) == side, F.col(_HASH))
        found += [aggregate(value).alias(f"_lakecdc_{name}_{side}") for name, aggregate in _STATE.items()]
    return found


def _state(side: int) -> Column:
    return F.struct(*[F.col(f"_lakecdc_{name}_{side}").alias(name) for name in _STATE])


def _values(columns: Sequence[str]) -> list[Column]:
    """Aggregates of a key's values on each side, for :func:`_unequal`."""
    if not columns:
        return []
    values = F.struct(*[F.col(quoted_column(name)).alias(f"c{i}") for i, name in enumerate(columns)])
    sides = (_SOURCE, _TABLE)
    return [F.first(F.when(F.col(_SIDE) == side, values), ignorenulls=True).alias(_ROW[side]) for side in sides]


def _unequal(columns: Sequence[str]) -> Column:
    """Names of the columns that differ."""
    if not columns:
        return F.lit(None).cast("array<string>")
    there, here = F.col(_ROW[_SOURCE]), F.col(_ROW[_TABLE])
    other = [F.when(~there[f"c{i}"].eqNullSafe(here[f"c{i}"]), F.lit(name)) for i, name in enumerate(columns)]
    return F.array_compact(F.array(*other))


def _canonical(rows: DataFrame, columns: Iterable[str]) -> DataFrame:
    """The rows with one form for values that are the same: of nested ones JSON, the entries of a map in their order."""
    nested = [name for name in columns if holds(rows.schema[name].dataType, *_NESTED)]
    return rows.withColumns({name: _nested(rows, name) for name in nested}) if nested else rows


def _nested(rows: DataFrame, name: str) -> Column:
    value = F.col(quoted_column(name))
    exact = exact_value(value, rows.schema[name].dataType)
    return F.when(value.isNotNull(), exact_json(F.struct(exact.alias("value"))))
