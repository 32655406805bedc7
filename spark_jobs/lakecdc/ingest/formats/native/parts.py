"""Decode messages part by part: plain events of Debezium with DuckDB, all others in Python."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.message_columns import has_key_of, has_old_key, partitions
from lakecdc.ingest.formats.native import plain
from lakecdc.ingest.formats.native.decoder import Decoder
from lakecdc.ingest.formats.native.exact import is_told_by_text

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from lakecdc.ingest.formats.native.decoding import Decoding

# messages that Python decodes at once, and bytes of them: they are some ten times as large meanwhile
_ROWS, _BYTES = 16_384, 8 * 1024 * 1024
# messages of which plain events are decoded at once, and their bytes
_PLAIN_ROWS, _PLAIN_BYTES = 131_072, 32 * 1024 * 1024
_OF_A_TABLE = "rcudt"
# of a part that is worth being looked through for plain events
_LEAST_PLAIN = 0.3


class PartDecoder:
    """What decodes the messages of one task.

    :param connection: of a DuckDB of the task's own.
    """

    def __init__(self, decoding: Decoding, connection: duckdb.DuckDBPyConnection) -> None:
        self._decoding, self._decoder = decoding, Decoder(decoding)
        is_plain = decoding.format in plain.FORMATS and all(map(is_told_by_text, decoding.fields))
        is_plain = is_plain and decoding.judged is None
        self._plain = plain.PlainEvents(connection, decoding) if is_plain else None

    @property
    def moves(self) -> int:
        """Updates so far that changed a key, each of which became two events."""
        return self._decoder.moves

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield events in the engine's layout, with the columns of the checks."""
        import pyarrow as pa

        gathered: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            gathered.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _PLAIN_ROWS or size >= _PLAIN_BYTES or self._plain is None:
                yield from self._decode_all(pa.Table.from_batches(gathered))
                gathered, rows, size = [], 0, 0
        if gathered:
            yield from self._decode_all(pa.Table.from_batches(gathered))

    def _decode_all(self, messages: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in messages.combine_chunks().to_batches():
            values, expected = self._decoder.payloads(batch)
            left = None
            if self._plain is not None:
                events, left = self._decode_plain(self._plain, batch, values, expected)
                yield from events.to_batches()
            yield from self._decode_left(batch, values, expected, left)

    def _decode_plain(
        self,
        decoder: plain.PlainEvents,
        messages: pa.RecordBatch,
        values: pa.Array,
        expected: list[bool] | None,
    ) -> tuple[pa.Table, pa.Array | None]:
        """Return the plain events, and the places of the messages that are left; None for all."""
        import pyarrow as pa
        import pyarrow.compute as pc

        candidates = values.is_valid()
        if self._decoding.keyed:
            candidates = pc.and_(candidates, pc.invert(has_old_key(messages)))
            if self._decoding.tells_key:
                candidates = pc.and_(candidates, has_key_of(messages, {*self._decoding.key}))
        if expected is not None:
            candidates = pc.and_(candidates, pa.array(expected))
        looked_at = pc.if_else(candidates, values, pa.scalar(None, values.type))
        partition = partitions(messages) if self._decoding.keyed else pa.repeat("0", len(messages))
        events = decoder.decode(looked_at, messages.column("arrival"), partition)
        if events is None:
            return self._decoder.layout(messages).empty_table(), None
        names = pc.unique(events["source_table"]).to_pylist()
        own = [name for name in names if name and self._decoding.is_own(name)]
        is_own = pc.is_in(events["source_table"], pa.array(own, pa.string()))
        # whose the others are may depend on their topics, and a message with an unknown op on more than that
        others = [] if self._decoding.routed else [name for name in names if name and name not in own]
        is_other = pc.is_in(events["source_table"], pa.array(others, pa.string()))
        is_other = pc.and_(is_other, pc.is_in(events["op"], pa.array(list(_OF_A_TABLE))))
        taken = pc.and_(events["plain"], is_own)
        left = events["place"].filter(pc.invert(pc.or_(taken, is_other)))
        if len(left) > (1 - _LEAST_PLAIN) * len(messages):
            self._plain = None
        return self._decoder.complete(events.filter(taken), messages), left.combine_chunks()

    def _decode_left(
        self, messages: pa.RecordBatch, values: pa.Array, expected: list[bool] | None, left: pa.Array | None
    ) -> Iterator[pa.RecordBatch]:
        """Decode messages in Python.

        :param left: their places; None for all.
        """
        if left is not None:
            messages, values = messages.take(left), values.take(left)
            expected = None if expected is None else [expected[place] for place in left.to_pylist()]
        for start, rows in slices(messages):
            part = None if expected is None else expected[start : start + rows]
            # a million short-lived objects have no circles, which take as long to look for as to decode them
            gc.disable()
            try:
                events = self._decoder.decode(messages.slice(start, rows), values.slice(start, rows), part)
            finally:
                gc.enable()
            if events.num_rows:
                yield from events.combine_chunks().to_batches()


def slices(messages: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield the start and the number of rows of slices that are small enough for Python."""
    start = 0
    while start < messages.num_rows:
        rows = _ROWS
        while rows > 1 and messages.slice(start, rows).nbytes > _BYTES:
            rows //= 2
        yield start, rows
        start += rows
