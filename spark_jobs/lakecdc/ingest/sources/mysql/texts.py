"""Values of MySQL from their texts; full load and log share them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.text_columns import cast_or_parse, parse
from lakecdc.ingest.sources.hexadecimal import octets
from lakecdc.ingest.sources.mysql.types import BYTES, DATED, EXACT_NUMBERS
from lakecdc.model.columns import DECIMAL

if TYPE_CHECKING:
    import pyarrow as pa

ZERO_DATE = "^(0000|.{5}00|.{8}00)"
# types of columns for which Arrow reads the texts of a type of MySQL exactly; decimals as well for numbers
_BY_ARROW = {
    **dict.fromkeys(EXACT_NUMBERS, ("int", "bigint")),
    "bit": ("boolean", "bigint"),
    "float": ("float", "double"),
    "double": ("double",),
    "date": ("date",),
    "datetime": ("timestamp_ntz",),
    "timestamp": ("timestamp",),
}
_TIMES = ("date", "timestamp", "timestamp_ntz")


def convert(texts: pa.Array, base: str, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts, see :data:`lakecdc.ingest.formats.text_columns.Convert`.

    :param texts: the server's in UTC; bytes as hexadecimal digits, a bit field as a number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if base in BYTES:
        return _of_bytes(octets(texts), kind)
    if base in DATED and kind in _TIMES:
        # a date that no calendar has is null
        texts = pc.if_else(pc.match_substring_regex(texts, ZERO_DATE), pa.scalar(None, pa.string()), texts)
        if base == "timestamp" and kind == "timestamp":
            texts = pc.binary_join_element_wise(texts, "Z", "")
        return (cast_or_parse if _is_read_by_arrow(base, kind) else parse)(texts, kind)[0], ()
    return (cast_or_parse if _is_read_by_arrow(base, kind) else parse)(texts, kind)


def _is_read_by_arrow(base: str, kind: str) -> bool:
    if kind in _BY_ARROW.get(base, ()):
        return True
    return (base in EXACT_NUMBERS or base == "bit") and bool(DECIMAL.fullmatch(kind))


def _of_bytes(values: pa.Array, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return bytes in a type; as anything but bytes they are text in UTF-8."""
    import pyarrow as pa

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
