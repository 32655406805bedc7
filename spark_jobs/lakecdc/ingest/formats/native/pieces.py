"""Reading lines of files inside a task: pieces of about the same size, cut at the ends of lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from typing import IO

    import pyarrow as pa

# bytes that are decoded at once
_CHUNK = 8 * 1024 * 1024
# a file's number stands above the place in it: 41 bits are two terabytes
_PLACE_BITS = 41
# a smaller piece is not worth a task of its own
_SMALLEST = 8 * 1024 * 1024
_PACKED = (".gz", ".bz2")
# what Spark unpacks by its name and this module does not
_UNKNOWN = (".zst", ".zstd", ".snappy", ".lz4", ".deflate", ".xz")
# of text in a packed file, by experience with JSON
_RATIO = 8


class OddTextError(ValueError):
    """Text whose lines Spark would cut elsewhere."""


@dataclass(frozen=True)
class Piece:
    """Lines of a file that begin between two places.

    :param number: of the file.
    :param end: None for a packed file, which is read to its end.
    """

    path: str
    number: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Lines:
    """What each task reads: called with the numbers of tasks, it yields tables of ``value, arrival``.

    The place of arrival is the file's number and the line's first byte.
    """

    tasks: tuple[tuple[Piece, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in self.tasks[number]:
                    yield from _tables(piece)


def plan(numbers: Mapping[str, int], parallelism: int, most_bytes: int) -> tuple[Lines, int] | None:
    """Spread files over tasks by their bytes.

    :param numbers: number of every file, by its URI.
    :param parallelism: tasks to aim at.
    :param most_bytes: that one task reads; more tasks are made for more.
    :return: what the tasks read, and the bytes of text about; None if a file is not on a local disk.
    """
    files = []
    for uri, number in numbers.items():
        parts = urlsplit(uri)
        path = unquote(parts.path)
        if parts.scheme not in ("", "file") or parts.query or parts.fragment or path.lower().endswith(_UNKNOWN):
            return None
        if not os.path.isfile(path):
            return None
        files.append(Piece(path, number, 0, None if path.lower().endswith(_PACKED) else os.path.getsize(path)))
    total = sum(_size(piece) for piece in files)
    wanted = max(1, min(parallelism, total // _SMALLEST), -(-total // most_bytes))
    return Lines(tuple(_spread(sorted(files, key=lambda p: p.number), -(-total // wanted)))), total


def _size(piece: Piece) -> int:
    return os.path.getsize(piece.path) * _RATIO if piece.end is None else piece.end - piece.start


def _spread(files: Sequence[Piece], share: int) -> Iterator[tuple[Piece, ...]]:
    """Fill one task after another."""
    current: list[Piece] = []
    room = share
    for file in files:
        place = file.start
        while file.end is not None and file.end - place > room:
            current.append(Piece(file.path, file.number, place, place + room))
            place += room
            yield tuple(current)
            current, room = [], share
        current.append(Piece(file.path, file.number, place, file.end))
        room -= _size(current[-1])
        if room <= 0:
            yield tuple(current)
            current, room = [], share
    if current:
        yield tuple(current)


def _tables(piece: Piece) -> Iterator[pa.Table]:
    with _opened(piece) as file:
        place = _begin(file, piece.start)
        while piece.end is None or place < piece.end:
            room = _CHUNK if piece.end is None else min(_CHUNK, piece.end - place)
            # the line that the last byte is part of belongs to the piece as well
            text = file.read(room)
            if not text:
                return
            if not text.endswith(b"\n"):
                text += file.readline()
            table = _table(text, (piece.number << _PLACE_BITS) + place)
            place += len(text)
            if table.num_rows:
                yield table


def _opened(piece: Piece) -> IO[bytes]:
    import bz2
    import gzip

    if piece.end is not None:
        return open(piece.path, "rb")
    return gzip.open(piece.path) if piece.path.lower().endswith(".gz") else bz2.open(piece.path)  # type: ignore[return-value]


def _begin(file: IO[bytes], start: int) -> int:
    """Go to the first line that begins at or behind a place."""
    if not start:
        return 0
    file.seek(start - 1)
    return start - 1 + len(file.readline())


def _table(text: bytes, first: int) -> pa.Table:
    """Lines that are not empty.

    :param first: place of arrival of the first byte.
    :raises OddTextError: a carriage return that ends no line, where Spark would end one.
    """
    import numpy as np
    import pyarrow as pa

    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
        raise OddTextError("lines end with carriage returns")
    if not text.endswith(b"\n"):
        text += b"\n"
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10) + 1
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    value = pa.Array.from_buffers(pa.string(), len(ends), buffers)
    table = pa.table({"value": value, "arrival": pa.array(bounds[:-1].astype(np.int64) + first)})
    short = np.diff(bounds) < 3
    if not short.any():
        return table
    kept = np.ones(len(ends), bool)
    for line in np.flatnonzero(short):
        kept[line] = bool(text[bounds[line] : bounds[line + 1]].strip(b"\r\n"))
    return table.filter(pa.array(kept))
