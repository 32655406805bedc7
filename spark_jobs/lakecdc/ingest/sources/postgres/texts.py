"""Values of Postgres from their texts; full load and log share them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.text_columns import OUTERMOST, cast_or_parse, parse
from lakecdc.ingest.sources.hexadecimal import octets
from lakecdc.model.columns import DECIMAL

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS = ("int", "bigint")
# types of columns for which Arrow reads the texts of a type of Postgres exactly; decimals as well for numbers
_BY_ARROW = {
    **dict.fromkeys(("int2", "int4", "int8"), _INTEGERS),
    "numeric": (),
    "float4": ("float", "double"),
    "float8": ("double",),
    "date": ("date",),
    "timestamp": ("timestamp_ntz",),
    "timestamptz": ("timestamp",),
}
_EXACT_NUMBERS = ("int2", "int4", "int8", "numeric")
_DATED = ("date", "timestamp", "timestamptz")


def is_read_by_arrow(base: str, kind: str) -> bool:
    """Check whether Arrow reads each text exactly or refuses it.

    :param base: name of the Postgres type, a domain's base.
    :param kind: Spark SQL type of the column.
    """
    if base == "bool":
        return kind == "boolean"
    return kind in _BY_ARROW.get(base, ()) or (base in _EXACT_NUMBERS and bool(DECIMAL.fullmatch(kind)))


@dataclass(frozen=True)
class Texts:
    """What turns texts into values, see :data:`lakecdc.ingest.formats.text_columns.Convert`.

    The texts are those of the types' output functions under the settings of ``connect``.

    :param infinity: option of the source: ``quarantine`` leaves the texts of infinite dates and times, ``null`` makes
        them null, ``bounds`` the outermost values of the type.
    """

    infinity: str = "quarantine"

    def __call__(self, texts: pa.Array, base: str, kind: str) -> tuple[pa.Array, Collection[int]]:
        """Return the values of texts, and the places of those that do not fit."""
        import pyarrow.compute as pc

        if kind == "binary" and base == "bytea":
            return octets(texts, len("\\x")), ()
        if kind == "boolean" and base == "bool":
            return pc.equal(texts, "t"), ()
        if base in _DATED and kind in OUTERMOST and self.infinity != "quarantine":
            texts = self._finite(texts, kind)
        return cast_or_parse(texts, kind) if is_read_by_arrow(base, kind) else parse(texts, kind)

    def _finite(self, texts: pa.Array, kind: str) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        low, high = OUTERMOST[kind] if self.infinity == "bounds" else (None, None)
        for text, value in (("-infinity", low), ("infinity", high)):
            texts = pc.if_else(pc.equal(texts, text), pa.scalar(value, pa.string()), texts)
        return texts
