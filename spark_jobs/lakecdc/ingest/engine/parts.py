"""Decode messages part by part."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lakecdc.ingest.engine.decoder import Decoder

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.engine.decoding import Decoding

# messages that are decoded at once, and bytes of them: they are some ten times as large meanwhile
_ROWS, _BYTES = 16_384, 8 * 1024 * 1024


class PartDecoder:
    """What decodes the messages of one task."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoder = Decoder(decoding)

    @property
    def moves(self) -> int:
        """Updates so far that changed a key, each of which became two events."""
        return self._decoder.moves

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield events in the engine's layout, with the columns of the checks."""
        for part in (part for batch in batches for part in _parts(batch)):
            # a million short-lived objects have no circles, which take as long to look for as to decode them
            gc.disable()
            try:
                tables = [*self._decoder.decode(part)]
            finally:
                gc.enable()
            for events in tables:
                yield from events.combine_chunks().to_batches()


def _parts(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut messages into parts that are small enough to be decoded at once."""
    start = 0
    while start < messages.num_rows:
        rows = _ROWS
        while rows > 1 and messages.slice(start, rows).nbytes > _BYTES:
            rows //= 2
        yield messages.slice(start, rows)
        start += rows
