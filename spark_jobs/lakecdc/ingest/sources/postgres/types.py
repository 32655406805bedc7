"""Postgres types as Spark SQL types, and values from their text; full load and log share both.

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
the table with an error, unless the target's ``columns`` names a type for it, as which its text is read, or
``exclude_columns`` leaves it out. A value is read exactly or not at all: an event with one that its type cannot hold,
such as the date ``infinity``, a year BC or the numeric ``NaN``, goes to the quarantine; the value never becomes null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.formats.text_columns import OUTERMOST, TextColumn, TypeRows
from lakecdc.ingest.sources.log.texts import is_read_by_arrow, octets, typed

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
    """Looks types up at the source, each once.

    :param infinity: see :class:`Texts`.
    """

    def __init__(self, session: Session, infinity: str = "quarantine") -> None:
        self._session, self.infinity = session, infinity
        self._known: dict[int, PgType | None] = {}

    def find(self, oid: int) -> PgType | None:
        """Return the type of an oid; None if the source has dropped it."""
        if oid not in self._known:
            row = self._session.execute(_LOOKUP, ([oid],)).fetchone()
            self._known[oid] = PgType(*row) if row else None
        return self._known[oid]

    def spark_type(self, oid: int, modifier: int) -> str | None:
        """Return the Spark SQL type for a column's type; None without a counterpart.

        :param modifier: the type modifier as ``pg_attribute`` keeps it, -1 for none.
        """
        found = self.find(oid)
        if found is None:
            return None
        if found.kind == "d":
            return self.spark_type(found.base, found.base_modifier if modifier < 0 else modifier)
        if found.kind == "e" or found.name == "citext":
            return "string"
        if found.schema != "pg_catalog" or found.kind != "b":
            return self._array(found)
        if found.name == "numeric":
            return numeric(modifier)
        return _SIMPLE.get(found.name) or self._array(found)

    def name(self, oid: int) -> str:
        found = self.find(oid)
        return found.name if found else f"of oid {oid}, which no longer exists"

    def base_name(self, oid: int) -> str:
        """Return the name of the type, of a domain's base type."""
        found = self.find(oid)
        return self.base_name(found.base) if found and found.kind == "d" else self.name(oid)

    def type_rows(self, table: SourceTable, columns: Iterable[Column]) -> TypeRows:
        """Return the converter of a table's rows to the target's columns."""
        oids = {c.name: c.type_oid for c in table.columns}
        text_columns = tuple(TextColumn(c.name, self.base_name(oids[c.name]), c.type) for c in columns)
        return TypeRows(text_columns, table.key, Texts(self.infinity))

    def _array(self, found: PgType) -> str | None:
        is_array = found.category == "A" and found.element
        return "string" if is_array and self.spark_type(found.element, -1) else None


def numeric(modifier: int) -> str:
    """Return the type for ``numeric`` with a modifier: precision in its upper half, below a signed scale of 11 bits."""
    if modifier < 0:
        return "string"
    precision = ((modifier - 4) >> 16) & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "string"


def is_parsed_by_arrow(base: str, kind: str) -> bool:
    """Check whether Arrow reads each text of a type in the CSV of a full load exactly or refuses it.

    :param base: name of the Postgres type, a domain's base.
    :param kind: Spark SQL type of the column.
    """
    return kind == "boolean" if base == "bool" else is_read_by_arrow(_own(base), kind)


def _own(base: str) -> str:
    return "numeric" if base == "numeric" else _SIMPLE.get(base, "")


@dataclass(frozen=True)
class Texts:
    """Turns texts into values, see :data:`lakecdc.ingest.formats.text_columns.Convert`.

    The texts are those of the types' output functions under the settings of ``connect``.

    :param infinity: what infinite dates and times become: ``quarantine`` leaves their texts, ``null`` makes them null,
        ``bounds`` the outermost values of the type.
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
