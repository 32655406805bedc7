"""Encode values so that Spark groups, compares and sorts them exactly: -0.0 and 0.0, maps and variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.sql import holds

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_INEXACT = ("float", "double", "map", "variant")


def is_exact(kind: DataType) -> bool:
    """Check whether Spark distinguishes all values of a type."""
    return not holds(kind, *_INEXACT)


def exact_value(value: Column, kind: DataType) -> Column:
    """Convert a value to a form that is equal only for equal values, and null only for null.

    The order of a map's entries does not count. For a variant both text and type count.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if is_exact(kind):
        return value
    if isinstance(kind, StructType):
        members = [exact_value(value[f.name], f.dataType).alias(f"m{place}") for place, f in enumerate(kind.fields)]
        form = F.struct(*members)
    elif isinstance(kind, ArrayType):
        form = F.transform(value, lambda one: exact_value(one, kind.elementType))
    elif isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(value),
            lambda one: F.struct(exact_value(one["key"], kind.keyType), exact_value(one["value"], kind.valueType)),
        )
        form = F.array_sort(entries)
    elif kind.typeName() == "variant":
        form = F.struct(F.to_json(value), F.schema_of_variant(value))
    else:
        is_negative_zero = (value == 0) & (value.cast("string") == "-0.0")
        form = F.struct(value, is_negative_zero)
    return F.when(value.isNotNull(), form)
