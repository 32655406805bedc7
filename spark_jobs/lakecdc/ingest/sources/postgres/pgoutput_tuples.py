"""TupleData of Postgres' logical replication messages: the values of a row.

Layout: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

#: stands for a value that an update did not change
UNCHANGED = object()
Values = list[Any]


_CUT_OFF = "A message ends before its values."


class ProtocolError(ValueError):
    """A message is not part of protocol version 1."""


def read_tuple(message: bytes, at: int) -> tuple[Values, int]:
    """Decode the TupleData that begins at ``at``.

    :return: values as bytes, None for null, or :data:`UNCHANGED`; and the end.
    :raises ProtocolError: a kind of value that protocol version 1 does not have.
    """
    count = (message[at] << 8) | message[at + 1]
    at += 2
    values: Values = []
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == 0x74:
            length = int.from_bytes(message[at : at + 4], "big")
            at += 4 + length
            if at > len(message):
                raise ProtocolError(_CUT_OFF)
            values.append(message[at - length : at])
        elif kind in b"nu":
            values.append(None if kind == 0x6E else UNCHANGED)
        else:
            raise ProtocolError(f"A column value of kind {chr(kind)!r} is not part of protocol version 1.")
    return values, at


def write_tuple(values: Values) -> bytes:
    """Return the TupleData of values, the reverse of :func:`read_tuple`."""
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value is None or value is UNCHANGED:
            parts.append(b"n" if value is None else b"u")
        else:
            parts += [b"t", struct.pack(">i", len(value)), value]
    return b"".join(parts)


class Tuples:
    """TupleData of many rows, split into values column by column for all rows at once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._parts: list[bytes] = []
        # the row of each part, and the start of the tuple in it
        self._rows: list[int] = []
        self._at: list[int] = []

    def add(self, row: int, messages: Sequence[bytes], at: int) -> None:
        """Add the TupleData that begins at ``at`` in each message.

        :param row: row number of the first message; the others follow.
        """
        self._parts += messages
        self._rows += range(row, row + len(messages))
        self._at += repeat(at, len(messages))
        self.bytes += sum(map(len, messages))

    def split(self, count: int) -> tuple[pa.ListArray, list[tuple[int, int]]]:
        """Return a list of strings per row, null without a tuple, and row and column of each unchanged value.

        :param count: number of rows.
        :raises ProtocolError: a kind of value that protocol version 1 does not have.
        """
        data = b"".join(self._parts)
        ends = np.cumsum(np.fromiter(map(len, self._parts), np.int64, len(self._parts)))
        starts = np.full(count, -1, np.int64)
        starts[self._rows] = np.append(0, ends)[:-1] + np.array(self._at, np.int64)
        stops = np.zeros(count, np.int64)
        stops[self._rows] = ends
        octets = np.frombuffer(data, np.uint8)
        rows = np.nonzero(starts >= 0)[0]
        at, stop = starts[rows], stops[rows]
        # Arrow checks nothing: a wrong length would make it read beyond the message
        _within(at + 2 <= stop)
        counts = (octets[at].astype(np.int64) << 8) | octets[at + 1]
        at += 2
        firsts = np.cumsum(counts) - counts
        bounds = np.zeros((int(counts.sum()), 2), np.int32)
        present = np.zeros(len(bounds), np.bool_)
        unchanged: list[tuple[int, int]] = []
        for place in range(int(counts.max(initial=0))):
            wide = np.nonzero(counts > place)[0]
            here = at[wide]
            _within(here < stop[wide])
            kind = octets[here]
            text = kind == 0x74
            open_rows = rows[wide[kind == 0x75]]
            if not np.all(text | (kind == 0x6E) | (kind == 0x75)):
                odd = kind[~(text | (kind == 0x6E) | (kind == 0x75))][0]
                raise ProtocolError(f"A column value of kind {chr(odd)!r} is not part of protocol version 1.")
            first, end = here + 1, here + 1
            lengths = here[text]
            _within(lengths + 5 <= stop[wide][text])
            size = sum(octets[lengths + n].astype(np.int64) << (32 - 8 * n) for n in range(1, 5))
            first[text] = lengths + 5
            end[text] = lengths + 5 + size
            _within(end <= stop[wide])
            bounds[firsts[wide] + place, 0], bounds[firsts[wide] + place, 1] = first, end
            present[firsts[wide] + place] = text
            at[wide] = end
            unchanged += [(row, place) for row in open_rows.tolist()]
        per_row = np.zeros(len(starts) + 1, np.int32)
        per_row[rows + 1] = counts
        offsets = pa.array(np.cumsum(per_row, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, _cut(data, bounds, present), mask=pa.array(starts < 0)), unchanged


def _within(checks: Any) -> None:
    """Check that places are inside their messages."""
    if not checks.all():
        raise ProtocolError(_CUT_OFF)


def _cut(data: bytes, bounds: Any, present: Any) -> pa.Array:
    """Cut strings out of a buffer.

    :param bounds: start and end of each, ascending; Arrow sees values and the gaps between them in turn.
    :param present: false for null.
    """
    from pyarrow import compute

    if not len(bounds):
        return pa.array([], pa.string())
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(bounds) - 1, [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(data)]
    )
    values = pieces.take(pa.array(np.arange(0, 2 * len(bounds) - 1, 2)))
    # the cast checks that the text is UTF-8
    return compute.if_else(pa.array(present), values, pa.scalar(None, pa.binary())).cast(pa.string())
