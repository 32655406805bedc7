"""Read lines of files inside a task: pieces of similar size, cut at line ends."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

_NEWLINE, _RETURN = b"\n\r"
# bytes decoded at once
_CHUNK = 8 * 1024 * 1024
#: bits of the place in a file, below the file's number: 41 bits are two terabytes
PLACE_BITS = 41
# a smaller piece is not worth a task
_SMALLEST = 8 * 1024 * 1024
_PACKED = (".gz", ".bz2")
# compressions that Spark supports and this module does not
_UNKNOWN = (".zst", ".zstd", ".snappy", ".lz4", ".deflate", ".xz")
# typical compression ratio of JSON
_RATIO = 8
# highest compression ratio of gzip
_MOST_RATIO = 1100
# bytes of a line after the chunk that it begins in: a variant in Spark is limited to a quarter of this
_LONGEST_LINE = 64 * 1024 * 1024
_UNUSABLE = re.compile(r"UnusableFileError: (.*)")


class UnusableFileError(Exception):
    """A file has no readable messages, for example because a line is too long or the file is damaged."""


class OddTextError(ValueError):
    """Spark would split the lines of a text differently."""


class CutFileError(Exception):
    """A file is shorter than when its pieces were planned."""


@dataclass(frozen=True)
class Piece:
    """Lines of a file that begin between two places.

    :param end: None for a packed file, which is read to its end.
    :param longest: bytes of a line after the chunk that it begins in.
    """

    path: str
    number: int
    start: int = 0
    end: int | None = None
    longest: int = _LONGEST_LINE


@dataclass(frozen=True)
class Lines:
    """The pieces of each task: called with the numbers of tasks, it yields batches of ``value, arrival``.

    The place of arrival combines the file's number and the line's first byte.
    """

    tasks: tuple[tuple[Piece, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in self._pieces(batches):
            for place, text in _texts(piece):
                lines = _lines(text, (piece.number << PLACE_BITS) + place)
                if lines.num_rows:
                    yield lines

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from self.tasks[number]

    def that_may_be_long(self) -> Lines:
        """Return the lines without files that are too small for a line that is too long."""
        left = [tuple(p for p in task if _most_bytes(p) > p.longest) for task in self.tasks]
        return Lines(tuple(filter(None, left)))

    def check(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read everything, and yield nothing.

        :raises UnusableFileError: a file has such a line.
        """
        for piece in self._pieces(batches):
            for _ in _texts(piece):
                pass
        yield from ()

    def cut(self) -> str | None:
        """Return the error of a file that was cut or removed meanwhile; None without one."""
        for piece in (piece for task in self.tasks for piece in task):
            try:
                _check_size(piece, os.path.getsize(piece.path))
            except CutFileError as error:
                return str(error)
            except OSError:
                return f"The file {piece.path} was removed."
        return None


def plan(numbers: Mapping[str, int], parallelism: int, most_bytes: int) -> tuple[Lines, int] | None:
    """Spread files over tasks by their bytes.

    :param numbers: number of every file, by its URI.
    :param parallelism: desired number of tasks.
    :param most_bytes: most bytes that one task reads.
    :return: the pieces, and the approximate bytes of text; None if a file is not on a local disk.
    """
    files = []
    for uri, number in numbers.items():
        path = local_path(uri)
        if path is None or path.lower().endswith(_UNKNOWN):
            return None
        end = None if path.lower().endswith(_PACKED) else os.path.getsize(path)
        files.append(Piece(path, number, 0, end, _LONGEST_LINE))
    total = sum(_size(piece) for piece in files)
    tasks = max(1, min(parallelism, total // _SMALLEST), -(-total // most_bytes))
    return Lines(tuple(_spread(sorted(files, key=lambda p: p.number), -(-total // tasks)))), total


def local_path(uri: str) -> str | None:
    """Return the path of a file on a local disk, else None."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    is_local = parts.scheme in ("", "file") and not (parts.query or parts.fragment)
    return path if is_local and os.path.isfile(path) else None


def unusable_file(error: Exception) -> str | None:
    """Return the message of an :class:`UnusableFileError`, raised here or in a task; None for any other error."""
    match = _UNUSABLE.search(f"{type(error).__name__}: {error}")
    return match[1] if match else None


def _most_bytes(piece: Piece) -> int:
    size = os.path.getsize(piece.path)
    if piece.end is not None:
        return size
    return size * _MOST_RATIO if piece.path.lower().endswith(".gz") else sys.maxsize


def _size(piece: Piece) -> int:
    return os.path.getsize(piece.path) * _RATIO if piece.end is None else piece.end - piece.start


def _spread(files: Sequence[Piece], share: int) -> Iterator[tuple[Piece, ...]]:
    current: list[Piece] = []
    room = share
    for file in files:
        place = file.start
        while file.end is not None and file.end - place > room:
            current.append(replace(file, start=place, end=place + room))
            place += room
            yield tuple(current)
            current, room = [], share
        current.append(replace(file, start=place))
        room -= _size(current[-1])
        if room <= 0:
            yield tuple(current)
            current, room = [], share
    if current:
        yield tuple(current)


def _check_size(piece: Piece, size: int) -> None:
    if piece.end is not None and size < piece.end:
        raise CutFileError(f"The file {piece.path} had at least {piece.end} bytes and now has {size}.")


def _texts(piece: Piece) -> Iterator[tuple[int, memoryview]]:
    """Yield whole lines and their starts."""
    end = sys.maxsize if piece.end is None else piece.end
    with _opened(piece.path) as file:
        if piece.start:
            # the line with the byte before the piece belongs to another piece
            file.seek(piece.start - 1)
            _rest_of_line(file, piece)
        while (place := file.tell()) < end:
            text = file.read(min(_CHUNK, end - place))
            _check_size(piece, os.fstat(file.fileno()).st_size)
            if not text:
                return
            if not text.endswith(b"\n"):
                text += _rest_of_line(file, piece)
            yield place, memoryview(text)


def _opened(path: str) -> BinaryIO | gzip.GzipFile | bz2.BZ2File:
    name = path.lower()
    return gzip.open(path) if name.endswith(".gz") else bz2.open(path) if name.endswith(".bz2") else open(path, "rb")


def _rest_of_line(file: BinaryIO | gzip.GzipFile | bz2.BZ2File, piece: Piece) -> bytes:
    """Return the rest of a line.

    :raises UnusableFileError: it is too long.
    """
    rest = file.readline(piece.longest + 1)
    if len(rest) > piece.longest:
        raise UnusableFileError(f"The file {piece.path} has a line of more than {piece.longest} bytes.")
    return rest


def _lines(text: memoryview, first: int) -> pa.RecordBatch:
    """Return the nonempty lines, given the place of arrival of the first byte.

    :raises OddTextError: a carriage return without a newline, where Spark would end a line.
    """
    if text[-1] != _NEWLINE:
        text = memoryview(bytes(text) + b"\n")
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE) + 1
    # comparing all bytes is far cheaper than mmap's find
    is_return = letters == _RETURN
    if is_return.any() and (letters[np.flatnonzero(is_return) + 1] != _NEWLINE).any():
        raise OddTextError("lines end with carriage returns")
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    value = pa.Array.from_buffers(pa.string(), len(ends), buffers)
    lines = pa.record_batch({"value": value, "arrival": pa.array(bounds[:-1].astype(np.int64) + first)})
    short = np.diff(bounds) < 3
    if not short.any():
        return lines
    not_empty = np.ones(len(ends), bool)
    for line in np.flatnonzero(short):
        not_empty[line] = bool(bytes(text[bounds[line] : bounds[line + 1]]).strip(b"\r\n"))
    return lines.filter(pa.array(not_empty))
