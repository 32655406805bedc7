"""Collect rows of one table from the binary log into an Arrow batch."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakecdc.ingest.sources.log.summary import EVENTS
from lakecdc.ingest.sources.mysql.types import count_zero_dates
from lakecdc.ingest.sources.mysql.values import Codec

_NAMES = [column.split(" ")[0] for column in EVENTS.split(", ")]

#: errors that Python raises on malformed bytes
UNREADABLE = (struct.error, LookupError, ArithmeticError, ValueError, RecursionError)
#: a row's values as in the log; null is None
Image = list[bytes | None]


class UnreadableError(ValueError):
    """A value cannot be read; the message says where and why."""


class Rows:
    """Buffered rows of one table.

    :param version: version of the table's description.
    :param new_codecs: codec of each column; None for an excluded one.
    :param old_codecs: the same for old values.
    :ivar new: values row by row; rows of kind ``d`` have none.
    :ivar old: old values of rows of kind ``d`` and of rows with a changed key; others have none.
    """

    def __init__(
        self, relation: int, version: int, new_codecs: Sequence[Codec | None], old_codecs: Sequence[Codec | None]
    ) -> None:
        self.zero_dates = 0
        self._table = relation, version
        self._codecs = new_codecs, old_codecs
        self._count = 0
        # consecutive rows alike: kind, position, seconds, whether the key changed
        self._runs: list[tuple[str, int, int, bool]] = []
        self._counts: list[int] = []
        self._ordinals: list[int] = []
        self.new: Image = []
        self.old: Image = []
        # first row and place of each event
        self._events: list[tuple[int, str]] = []

    def begin(self, place: str) -> None:
        self._events.append((self._count, place))

    def add(self, kind: str, where: tuple[int, int], ordinals: range, *, moved: bool = False) -> None:
        """Add rows whose values have been added.

        :param where: position and seconds.
        """
        self._runs.append((kind, *where, moved))
        self._counts.append(len(ordinals))
        self._ordinals += ordinals
        self._count += len(ordinals)

    def batch(self) -> pa.RecordBatch:
        """Return the batch of :data:`EVENTS`; ``old`` has the key's columns, or all columns of a table without a key.

        :raises UnreadableError: a value cannot be read; the message names the event.
        """
        columns = [np.repeat(np.array(values), self._counts) for values in zip(*self._runs, strict=True)]
        kind, position, seconds, moved = columns
        is_delete, (relation, version) = kind == "d", self._table
        arrays = [
            pa.repeat(pa.scalar(relation, pa.int64()), self._count),
            pa.repeat(pa.scalar(version, pa.int32()), self._count),
            *(pa.array(kind, pa.string()), pa.array(position, pa.int64()), pa.array(self._ordinals, pa.int64())),
            pa.array(seconds.astype(np.int64) * 1_000_000),
            self._lists(self.new, self._codecs[0], ~is_delete),
            # lists from pa.nulls have children of up to five times this size
            pa.array([None] * self._count, pa.list_(pa.string())),
            self._lists(self.old, self._codecs[1], is_delete | moved),
            *(pa.array(moved), pa.nulls(self._count, pa.string())),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=_NAMES)

    def _lists(self, values: Image, codecs: Sequence[Codec | None], there: np.ndarray[Any, Any]) -> pa.ListArray:
        """Return the texts of the rows that have values.

        :param values: values row by row.
        """
        width, count = len(codecs), int(there.sum())
        columns = [self._texts(values[i::width], codec, there) for i, codec in enumerate(codecs)]
        by_row = np.arange(width * count).reshape(width, count).T.ravel()
        offsets = np.append(0, np.cumsum(there * width)).astype(np.int32)
        flat = pa.concat_arrays(columns).take(pa.array(by_row))
        return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~there))

    def _texts(self, values: Image, codec: Codec | None, there: np.ndarray[Any, Any]) -> pa.Array:
        present = [value for value in values if value is not None]
        if codec is None or not present:
            return pa.nulls(len(values), pa.string())
        try:
            texts = codec.read(present)
        except UNREADABLE:
            self._refuse_unreadable(values, codec, there)
            raise
        if codec.dated:
            self.zero_dates += count_zero_dates(texts)
        if len(present) == len(values):
            return texts
        known = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return texts.take(pa.array(np.cumsum(known) - 1, mask=~known))

    def _refuse_unreadable(self, values: Image, codec: Codec, there: np.ndarray[Any, Any]) -> None:
        """Raise the error of the first unreadable value; it names the event."""
        for number, value in enumerate(values):
            try:
                codec.read([value] if value is not None else [])
            except UNREADABLE as error:
                row = int(np.flatnonzero(there)[number])
                event = bisect_right(self._events, row, key=lambda begun: begun[0]) - 1
                raise UnreadableError(f"has rows at {self._events[event][1]} that cannot be read: {error}") from error
