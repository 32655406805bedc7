"""Decode hexadecimal texts, as databases write bytes, for all rows at once."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def octets(texts: pa.Array, prefix: int = 0) -> pa.Array:
    """Return the bytes of texts that have ``prefix`` characters before the digits.

    :raises ValueError: a text has anything but pairs of digits.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

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
    found = pa.Array.from_buffers(pa.binary(), len(digits), buffers)
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, pa.binary())) if texts.null_count else found
