"""MySQL types as Spark SQL types, and values from their text; full load and log share both.

===============================================  ========================================================
MySQL, MariaDB                                   target
===============================================  ========================================================
tinyint, smallint, mediumint, int                int; int unsigned: bigint
bigint                                           bigint; unsigned: decimal(20, 0)
float, double                                    float, double
decimal(p, s), p up to 38                        decimal(p, s)
decimal with p above 38                          string: the only type that holds every value exactly
bit(1)                                           boolean
bit(2) to bit(63), bit(64)                       bigint, decimal(20, 0)
year                                             int
date                                             date
datetime                                         timestamp_ntz
timestamp                                        timestamp
time                                             string: it runs from -838:59:59 to 838:59:59
char, varchar, the texts, enum, set, json        string
binary, varbinary, the blobs                     binary
the geometries                                   binary: four bytes of SRID, then WKB
vector                                           binary: its floats, four bytes each, little-endian
===============================================  ========================================================

A date whose year, month or day is zero, or that no calendar has, becomes null; the report counts the zero dates. To
keep its text, give the column the type string with ``columns`` of the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.sources.text_values import TextValue

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_PRECISION = 38
_SMALL = ("tinyint", "smallint", "mediumint", "int", "year")
_SIMPLE = {
    **dict.fromkeys(_SMALL, "int"),
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    **dict.fromkeys(("time", "char", "varchar", "text", "enum", "set", "json"), "string"),
    **dict.fromkeys(("binary", "varbinary", "blob", "geometry", "vector"), "binary"),
}
#: what ``information_schema`` calls types that the log does not tell apart
BASES = {
    **{name: name for name in (*_SIMPLE, "decimal", "bit")},
    **dict.fromkeys(("tinytext", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("tinyblob", "mediumblob", "longblob"), "blob"),
    **dict.fromkeys(
        (
            *("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
            *("geometrycollection", "geomcollection"),
        ),
        "geometry",
    ),
}
#: types whose text is hexadecimal
BYTES = frozenset({"binary", "varbinary", "blob", "geometry", "vector"})
DATED = frozenset({"date", "datetime", "timestamp"})
NUMERIC = frozenset({*_SMALL, "bigint", "float", "double", "decimal", "bit"})


@dataclass(frozen=True)
class MysqlType:
    """A column's type, as far as its values depend on it.

    :param base: one of the values of :data:`BASES`.
    :param precision: digits of a decimal, bits of a bit field.
    :param scale: digits after the point.
    """

    base: str
    unsigned: bool = False
    precision: int = 0
    scale: int = 0

    @property
    def spark(self) -> str | None:
        """The Spark SQL type; None if there is none."""
        if self.base == "decimal":
            return f"decimal({self.precision},{self.scale})" if self.precision <= MAX_PRECISION else "string"
        if self.base == "bit":
            return "boolean" if self.precision == 1 else "bigint" if self.precision < 64 else "decimal(20,0)"
        if self.unsigned and self.base in ("int", "bigint"):
            return "bigint" if self.base == "int" else "decimal(20,0)"
        return _SIMPLE.get(self.base)


def typed(text: Column, base: str, target_type: str, column: str) -> TextValue:
    """Type a value's text.

    :param text: string column with the server's text in UTC; bytes as hexadecimal digits, a bit field as a number.
    :param base: of the column's type at the source.
    :param target_type: Spark SQL type.
    :param column: name of the target's column.
    """
    plain = partial(TextValue, column, target_type, text, may_misfit=False)
    if base in BYTES:
        octets = F.unhex(text)
        if target_type == "binary":
            return plain(octets)
        text = octets.cast("string")
        return TextValue(column, target_type, text, text.try_cast(target_type))
    if target_type == "string":
        return plain(text)
    if target_type == "binary":
        return plain(text.cast("binary"))
    if base in DATED and target_type in ("date", "timestamp", "timestamp_ntz"):
        # Spark knows a year 0, MySQL only as a part of dates that are none
        readable = F.when(~F.startswith(text, F.lit("0000")), text)
        zoned = F.concat(readable, F.lit("+00:00")) if base == "timestamp" else readable
        return plain(zoned.try_cast(target_type))
    return TextValue(column, target_type, text, text.try_cast(target_type))
