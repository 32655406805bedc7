"""Convert the texts that databases write to values, column by column; full loads and logs share this."""

from __future__ import annotations

import binascii
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.formats.text_columns import cast_or_parse, parse
from lakecdc.model.columns import DECIMAL

# column types for which Arrow parses a source type's texts exactly; for exact numbers also decimals
_BY_ARROW = {
    **dict.fromkeys(("int", "bigint", "decimal"), ("int", "bigint")),
    "bit": ("boolean", "bigint"),
    "float": ("float", "double"),
    **{name: (name,) for name in ("double", "date", "timestamp", "timestamp_ntz")},
}
# numerics have fraction zeros, which Arrow refuses in integers
_EXACT_NUMBERS = ("int", "bigint", "decimal", "numeric", "bit")


def is_read_by_arrow(own: str, kind: str) -> bool:
    """Check whether Arrow parses each text exactly or refuses it.

    :param own: Spark SQL type of the values at the source, ``decimal`` without its size, ``numeric``, or ``bit``.
    :param kind: Spark SQL type of the column.
    """
    return kind in _BY_ARROW.get(own, ()) or (own in _EXACT_NUMBERS and bool(DECIMAL.fullmatch(kind)))


def typed(texts: pa.Array, own: str, kind: str) -> tuple[pa.Array, Collection[int]]:
    """Return the values of texts, and the places of those that do not fit; see :func:`is_read_by_arrow`."""
    return (cast_or_parse if is_read_by_arrow(own, kind) else parse)(texts, kind)


def octets(texts: pa.Array, prefix: int = 0) -> pa.Array:
    """Return the bytes of texts of hexadecimal digits.

    :param prefix: characters before the digits of each text.
    :raises ValueError: a text has an odd number of digits.
    """
    digits = texts.fill_null("")
    if prefix:
        digits = pc.utf8_slice_codeunits(digits, prefix)
    if not len(digits):
        return pa.array([], pa.binary())
    _, offsets, data = digits.buffers()
    bounds = np.frombuffer(offsets, np.int32)[digits.offset : digits.offset + len(digits) + 1]
    edges = bounds - bounds[0]
    if (edges & 1).any():
        raise ValueError("a text of bytes has an odd number of digits")
    raw = binascii.unhexlify(memoryview(data or b"")[bounds[0] : bounds[-1]])
    buffers = [None, pa.py_buffer((edges >> 1).astype(np.int32)), pa.py_buffer(raw)]
    values = pa.Array.from_buffers(pa.binary(), len(digits), buffers)
    return pc.if_else(texts.is_valid(), values, pa.scalar(None, pa.binary())) if texts.null_count else values
