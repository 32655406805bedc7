"""Map MySQL types to Spark SQL types, and convert texts to values, for full load and log.

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
time                                             string: from -838:59:59 to 838:59:59
char, varchar, the texts, enum, set, json        string
binary, varbinary, the blobs                     binary
the geometries                                   binary: four bytes of SRID, then WKB
vector                                           binary: its floats, four bytes each, little-endian
===============================================  ========================================================

A date with a zero year, month or day, or that is not in the calendar, becomes null; the report counts zero dates. To
keep its text, set the column's type to string in ``columns`` of the target.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.formats.text_columns import octets, parse, typed

MAX_PRECISION = 38
ZERO_DATE = "^(0000|.{5}00|.{8}00)"
_TIMES = ("date", "timestamp", "timestamp_ntz")
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
#: names in ``information_schema`` of types that the log does not distinguish
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
NUMERIC = frozenset({*_SMALL, "bigint", "decimal", "float", "double", "bit"})


@dataclass(frozen=True)
class MysqlType:
    """The parts of a column's type that its values depend on.

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
        """The Spark SQL type; None without a counterpart."""
        if self.base == "decimal":
            return f"decimal({self.precision},{self.scale})" if self.precision <= MAX_PRECISION else "string"
        if self.base == "bit":
            return "boolean" if self.precision == 1 else "bigint" if self.precision < 64 else "decimal(20,0)"
        if self.unsigned and self.base in ("int", "bigint"):
            return "bigint" if self.base == "int" else "decimal(20,0)"
        return _SIMPLE.get(self.base)


def convert(texts: pa.Array, base: str, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts, see :data:`lakecdc.ingest.formats.text_columns.Convert`.

    :param texts: as the server writes them in UTC; bytes as hexadecimal digits, bit fields as numbers.
    """
    if base in BYTES:
        return _of_bytes(octets(texts), kind)
    is_date = base in DATED and kind in _TIMES
    if is_date:
        # a date that is not in the calendar is null
        texts = pc.if_else(pc.match_substring_regex(texts, ZERO_DATE), pa.scalar(None, pa.string()), texts)
        if base == "timestamp" and kind == "timestamp":
            texts = pc.binary_join_element_wise(texts, "Z", "")
    values, misfits = typed(texts, _SIMPLE.get(base, base), kind)
    return values, () if is_date else misfits


def count_zero_dates(texts: pa.Array) -> int:
    """Count the dates with a zero year, month or day."""
    zero = pc.or_(pc.match_substring(texts, "-00"), pc.starts_with(texts, "0000"))
    return int(pc.sum(zero).as_py() or 0)


def _of_bytes(values: pa.Array, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Convert bytes to a type; other types than binary get UTF-8 text."""
    if kind == "binary":
        return values, ()
    texts, misfits = list[str | None](), list[int]()
    for place, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            misfits.append(place)
    parsed, wrong = parse(pa.array(texts, pa.string()), kind)
    return parsed, sorted({*misfits, *wrong})
