"""Quote names, types and texts as Spark SQL, so that no input becomes a statement, and make values comparable."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_INEXACT = ("float", "double", "map", "variant")
#: options for exact JSON values; by default Spark cuts times to milliseconds
EXACT_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def quoted(name: str) -> str:
    """Quote a table's name for SQL, with dots as separators."""
    return ".".join(map(quoted_column, name.split(".")))


def quoted_column(name: str) -> str:
    """Quote a column's name for SQL; a dot is part of it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def exact_json(column: Column | str) -> Column:
    """Return a struct as JSON with exact values, without null members."""
    from pyspark.sql import functions as F

    return F.to_json(column, EXACT_JSON)


def sql_type(data_type: DataType) -> str:
    """Return a type as SQL with quoted member names; Spark's own form does not quote them."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        members = ",".join(f"{quoted_column(f.name)}:{sql_type(f.dataType)}" for f in data_type.fields)
        return f"struct<{members}>"
    if isinstance(data_type, ArrayType):
        return f"array<{sql_type(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"map<{sql_type(data_type.keyType)},{sql_type(data_type.valueType)}>"
    return data_type.simpleString()


def parsed_type(text: str) -> DataType:
    """Parse a type in SQL; raise an exception for types that Spark does not know."""
    from pyspark.sql.types import _parse_datatype_string

    return _parse_datatype_string(text)


def canonical(text: str) -> str:
    """Normalize a type in SQL to the form of :func:`sql_type`; raise as :func:`parsed_type` does."""
    return sql_type(parsed_type(text))


def holds(data_type: DataType, *kinds: str) -> bool:
    """Check whether a type is, or contains, one of some kinds, such as ``map``."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    inner: list[DataType] = []
    if isinstance(data_type, StructType):
        inner = [f.dataType for f in data_type.fields]
    elif isinstance(data_type, ArrayType):
        inner = [data_type.elementType]
    elif isinstance(data_type, MapType):
        inner = [data_type.keyType, data_type.valueType]
    return data_type.typeName() in kinds or any(holds(one, *kinds) for one in inner)


def sql_types(frame: DataFrame) -> dict[str, str]:
    """Return the types of a frame's columns by name."""
    return {f.name: sql_type(f.dataType) for f in frame.schema.fields}


@contextmanager
def temporary_view(frame: DataFrame) -> Iterator[str]:
    """Yield a unique view name for a frame, for statements that only accept names."""
    name = f"lakecdc_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def is_exact(kind: DataType) -> bool:
    """Check whether Spark distinguishes all values of a type: not for floats (-0.0 and 0.0), maps and variants."""
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
