"""Map Postgres types to Spark SQL types, and convert texts to values, for full load and log.

================================================  =======================================================
Postgres                                          target
================================================  =======================================================
boolean                                           boolean
smallint, integer                                 int
bigint                                            bigint
real                                              float
double precision                                  double
numeric(p, s), p up to 38                         decimal(p, s); a negative scale widens the precision
numeric without precision, or p above 38          string: the only type that holds every value exactly
text, varchar, char, citext, name                 string (char keeps its blanks)
uuid, json, jsonb, xml, enums                     string
inet, cidr, macaddr, macaddr8, bit, varbit        string
time, timetz                                      string
bytea                                             binary
date                                              date
timestamp                                         timestamp_ntz
timestamptz                                       timestamp
arrays of the above                               string, Postgres' array literal
domains                                           as their base type
================================================  =======================================================

Everything else (geometric, range, composite, tsvector, money, interval, oid, hstore and other extension types) stops
the table with an error, unless the target's ``columns`` sets a type to parse its text as, or ``exclude_columns`` leaves
it out. A value is read exactly or not at all: an event with a value that does not fit its type, such as the date
``infinity``, a year BC or the numeric ``NaN``, goes to the quarantine; the value never becomes null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.formats.text_columns import OUTERMOST, TextColumn, TypeRows, is_read_by_arrow, octets, typed

if TYPE_CHECKING:
    from lakecdc.ingest.change import Column
    from lakecdc.ingest.sources.postgres.catalog import SourceTable
    from lakecdc.ingest.sources.postgres.connect import Session

MAX_PRECISION = 38
_STRINGS = (
    *("text", "varchar", "bpchar", "char", "name", "uuid", "json", "jsonb", "xml"),
    *("inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "time", "timetz"),
)
_SIMPLE = {
    "bool": "boolean",
    "int2": "int",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    **dict.fromkeys(_STRINGS, "string"),
}
_DATED = ("date", "timestamp", "timestamptz")
_LOOKUP = """
SELECT t.oid, t.typname, n.nspname, t.typtype::text, t.typcategory::text, t.typbasetype, t.typtypmod, t.typelem
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = ANY(%s)
"""


@dataclass(frozen=True)
class PgType:
    """A row of ``pg_type``."""

    oid: int
    name: str
    schema: str
    kind: str
    category: str
    base: int
    base_modifier: int
    element: int


class TypeCatalog:
    """Look up types at the source, each once.

    :param infinity: see :class:`Texts`.
    """

    def __init__(self, session: Session, infinity: str = "quarantine") -> None:
        self._session, self.texts = session, Texts(infinity)
        self._known: dict[int, PgType | None] = {}

    def find(self, oid: int) -> PgType | None:
        """Return the type of an oid; None if it was dropped."""
        if oid not in self._known:
            row = self._session.execute(_LOOKUP, ([oid],)).fetchone()
            self._known[oid] = PgType(*row) if row else None
        return self._known[oid]

    def spark_type(self, oid: int, modifier: int) -> str | None:
        """Return the Spark SQL type for a column's type; None without a counterpart.

        :param modifier: the type modifier in ``pg_attribute``, -1 for none.
        """
        pg_type = self.find(oid)
        if pg_type is None:
            return None
        if pg_type.kind == "d":
            return self.spark_type(pg_type.base, pg_type.base_modifier if modifier < 0 else modifier)
        if pg_type.kind == "e" or pg_type.name == "citext":
            return "string"
        if pg_type.schema != "pg_catalog" or pg_type.kind != "b":
            return self._array(pg_type)
        if pg_type.name == "numeric":
            return numeric(modifier)
        return _SIMPLE.get(pg_type.name) or self._array(pg_type)

    def name(self, oid: int) -> str:
        pg_type = self.find(oid)
        return pg_type.name if pg_type else f"of oid {oid}, which no longer exists"

    def base_name(self, oid: int) -> str:
        """Return the name of the type, or of a domain's base type."""
        pg_type = self.find(oid)
        return self.base_name(pg_type.base) if pg_type and pg_type.kind == "d" else self.name(oid)

    def type_rows(self, table: SourceTable, columns: Iterable[Column]) -> TypeRows:
        """Return the converter of a table's rows to the target's columns."""
        oids = {c.name: c.type_oid for c in table.columns}
        text_columns = tuple(TextColumn(c.name, self.base_name(oids[c.name]), c.type) for c in columns)
        return TypeRows(text_columns, table.key, self.texts)

    def _array(self, pg_type: PgType) -> str | None:
        is_array = pg_type.category == "A" and pg_type.element
        return "string" if is_array and self.spark_type(pg_type.element, -1) else None


def numeric(modifier: int) -> str:
    """Return the type for ``numeric`` with a modifier: precision in the upper half, a signed scale of 11 bits below."""
    if modifier < 0:
        return "string"
    precision = ((modifier - 4) >> 16) & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "string"


def is_parsed_by_arrow(base: str, kind: str) -> bool:
    """Check whether Arrow parses each text of a type in a full load's CSV exactly or refuses it.

    :param base: name of the Postgres type, or of a domain's base type.
    :param kind: Spark SQL type of the column.
    """
    return kind == "boolean" if base == "bool" else is_read_by_arrow(_own(base), kind)


def _own(base: str) -> str:
    return "numeric" if base == "numeric" else _SIMPLE.get(base, "")


@dataclass(frozen=True)
class Texts:
    """Convert texts to values, see :data:`lakecdc.ingest.formats.text_columns.Convert`.

    The texts are those of the types' output functions under the settings of ``connect``.

    :param infinity: how infinite dates and times are converted: ``quarantine`` leaves their texts, ``null`` makes them
        null, ``bounds`` the outermost values of the type.
    """

    infinity: str = "quarantine"

    def __call__(self, texts: pa.Array, base: str, kind: str) -> tuple[pa.Array, Collection[int]]:
        if kind == "binary" and base == "bytea":
            return octets(texts, len("\\x")), ()
        if kind == "boolean" and base == "bool":
            return pc.equal(texts, "t"), ()
        if base in _DATED and kind in OUTERMOST and self.infinity != "quarantine":
            ends = OUTERMOST[kind] if self.infinity == "bounds" else (None, None)
            for text, value in zip(("-infinity", "infinity"), ends, strict=True):
                texts = pc.if_else(pc.equal(texts, text), pa.scalar(value, pa.string()), texts)
        return typed(texts, _own(base), kind)
