"""Distribute rows for a rewrite: each unit gets its number of files, and sorted files have disjoint key ranges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

# Spark infers the kind of UDF from these types
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.iceberg.sort_order import SortOrder
from lakecdc.local_relation import local_relation
from lakecdc.maintain.selection import Unit
from lakecdc.sql import quoted_column

#: sampled rows per output file for the bounds between files
_SAMPLE_PER_FILE = 200
#: sampled rows per output file for the shape of a curve
_CURVE_SAMPLE_PER_FILE = 1000
_FILE, _UNIT, _FIRST, _OUTPUTS, _BOUNDS, _KEY, _PIECES, _PIECE, _SHARE, _PLACE = (
    f"_lakecdc_{name}"
    for name in ("file", "unit", "first", "outputs", "bounds", "key", "pieces", "piece", "share", "place")
)
_AS_NUMBERS = {
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "unix_micros(cast({} as timestamp))",
    "float": "cast({} as double)",
    "double": "{}",
    "binary": "{}",
    **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), "cast({} as bigint)"),
}


def arrange(
    rows: DataFrame, units: Sequence[Unit], order: SortOrder, sampled: DataFrame, partitions_by: Sequence[str] = ()
) -> DataFrame:
    """Distribute rows over one sorted Spark partition per output file, each from a single piece of a unit.

    :param rows: a staged read of exactly the units' files.
    :param order: of the rows; without fields they keep their order.
    :param sampled: the same read without columns computed from whole rows, for samples.
    :param partitions_by: partition values as Spark SQL to sort by first, if rows go to several partitions.
    """
    placed, key = _with_units(rows, units), _key(order)
    many = [unit for unit in units if unit.outputs > unit.pieces]
    bounds = None
    if order.curve != "linear":
        placed, bounds = _on_curve(placed, _with_units(sampled, units), units, order)
        key = F.col(_PLACE)
    elif many and order.fields:
        bounds = _bounds(_with_units(sampled, units), units, order)
    offset = F.lit(0)
    if bounds is not None:
        placed = placed.join(F.broadcast(bounds), _UNIT, "left")
        offset = F.coalesce(F.size(F.filter(F.col(_BOUNDS), lambda bound: bound <= key)), F.lit(0))
    elif many:
        # keep a thousand neighbours together, so that runs of equal values still compress
        offset = F.expr(f"cast(pmod(monotonically_increasing_id() div 1000, {_OUTPUTS}) as int)")
    spread = placed.repartitionById(sum(unit.outputs for unit in units), F.col(_FIRST) + offset)
    by = [*map(F.expr, partitions_by), *([F.col(_PLACE)] if order.curve != "linear" else [])]
    by += [f.spark_column() for f in order.fields]
    return (spread.sortWithinPartitions(*by) if by else spread).select(*map(quoted_column, rows.columns))


def _with_units(rows: DataFrame, units: Sequence[Unit]) -> DataFrame:
    """Add to each row the facts of its unit, found by file name because in format v3 staged reads lack ``_file``."""
    firsts = itertools.accumulate((unit.outputs for unit in units), initial=0)
    numbers = itertools.accumulate((unit.pieces for unit in units), initial=0)
    pieces = list(dict.fromkeys(unit.piece for unit in units if unit.piece))
    places = []
    for unit, number, first in zip(units, numbers, firsts, strict=False):
        share = _CURVE_SAMPLE_PER_FILE * unit.outputs / max(sum(file.rows for file in unit.files), 1)
        piece_index = pieces.index(unit.piece) if unit.piece else None
        facts = (number, first, unit.outputs // unit.pieces, unit.pieces, piece_index, share)
        places += [(file.location, *facts) for file in unit.files]
    schema = f"{_FILE} string, {_UNIT} int, {_FIRST} int, {_OUTPUTS} int, {_PIECES} int, {_PIECE} int, {_SHARE} double"
    table = local_relation(rows.sparkSession, places, schema)
    placed = rows.withColumn(_FILE, F.input_file_name()).join(F.broadcast(table), _FILE)
    if not pieces:
        return placed
    cases = " ".join(f"WHEN {_PIECE} = {number} THEN {piece}" for number, piece in enumerate(pieces))
    # buckets of null are null
    piece = F.expr(f"cast(coalesce(pmod(CASE {cases} END, {_PIECES}), 0) as int)")
    placed = placed.withColumn(_PIECE, piece)
    return placed.withColumn(_UNIT, F.expr(f"{_UNIT} + {_PIECE}")).withColumn(
        _FIRST, F.expr(f"{_FIRST} + {_PIECE} * {_OUTPUTS}")
    )


def _bounds(rows: DataFrame, units: Sequence[Unit], order: SortOrder) -> DataFrame:
    """Sample the keys at which a unit's files begin; any ascending order will do, as files only have to be disjoint."""
    sample_rows = _SAMPLE_PER_FILE * sum(unit.outputs for unit in units)
    stored = sum(file.rows for unit in units for file in unit.files)
    keys = rows.where(F.col(_OUTPUTS) > 1).select(_UNIT, _OUTPUTS, _key(order).alias(_KEY))
    # the seed makes a repeated run cut at the same keys
    sample = keys.sample(min(1.0, sample_rows / max(stored, 1)), seed=7)
    of_unit = Window.partitionBy(_UNIT)
    rank = F.row_number().over(of_unit.orderBy(_KEY)) - 1
    piece = F.floor(rank * F.col(_OUTPUTS) / F.count(F.lit(1)).over(of_unit))
    starts = sample.withColumn("piece", piece).where("piece > 0").groupBy(_UNIT, "piece").agg(F.min(_KEY).alias(_KEY))
    return starts.groupBy(_UNIT).agg(F.array_sort(F.collect_set(_KEY)).alias(_BOUNDS))


def _on_curve(
    rows: DataFrame, sampled: DataFrame, units: Sequence[Unit], order: SortOrder
) -> tuple[DataFrame, DataFrame]:
    """Add each row's place on its unit's curve, and return per unit the places at which files begin."""
    from pyspark.sql.pandas.functions import arrow_udf

    from lakecdc.maintain.curves import CurveMap

    assert order.curve != "linear"
    keys = _numbers(rows, order)
    # the seed makes a repeated run cut at the same places
    sample = sampled.where(F.rand(7) < F.col(_SHARE)).select(
        _UNIT, *(F.expr(k).alias(f"k{n}") for n, k in enumerate(keys))
    )
    outputs = [unit.outputs // unit.pieces for unit in units for _ in range(unit.pieces)]
    laid = CurveMap.of(order.curve, sample.toArrow(), outputs)

    def places(unit: pa.Array, *columns: pa.Array) -> pa.Array:
        return laid.places(unit, *columns)

    place = arrow_udf(places, "bigint")  # type: ignore[call-overload]
    cuts = local_relation(rows.sparkSession, list(laid.cuts.items()), f"{_UNIT} int, {_BOUNDS} array<bigint>")
    return rows.withColumn(_PLACE, place(_UNIT, *map(F.expr, keys))), cuts


def _numbers(rows: DataFrame, order: SortOrder) -> list[str]:
    """Return SQL that maps the sort columns to integers, floats or bytes without reversing their order."""
    expressions = [f.expression for f in order.fields]
    types = [field.dataType.typeName() for field in rows.selectExpr(*expressions).schema.fields]
    return [
        _AS_NUMBERS.get(kind, "cast({} as double)" if kind == "decimal" else "cast({} as binary)").format(expression)
        for kind, expression in zip(types, expressions, strict=True)
    ]


def _key(order: SortOrder):  # type: ignore[no-untyped-def]
    return F.struct(*(F.expr(f.expression).alias(f"k{n}") for n, f in enumerate(order.fields)))
