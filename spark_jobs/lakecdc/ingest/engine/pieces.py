"""Reading lines of files inside a task: pieces of about the same size, cut at the ends of lines."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from bz2 import BZ2File
    from gzip import GzipFile
    from typing import BinaryIO

    import pyarrow as pa

_NEWLINE, _RETURN = b"\n\r"
# bytes that are decoded at once
_CHUNK = 8 * 1024 * 1024
#: a file's number stands above the place in it: 41 bits are two terabytes
PLACE_BITS = 41
# a smaller piece is not worth a task of its own
_SMALLEST = 8 * 1024 * 1024
_PACKED = (".gz", ".bz2")
# what Spark unpacks by its name and this module does not
_UNKNOWN = (".zst", ".zstd", ".snappy", ".lz4", ".deflate", ".xz")
# of text in a packed file, by experience with JSON
_RATIO = 8
# and what gzip can make of text at most
_MOST_RATIO = 1100
# bytes of a line, behind the chunk that it begins in: a variant of Spark's holds no more than a quarter of that
_LONGEST_LINE = 64 * 1024 * 1024
_LONG_LINE = re.compile(r"LongLineError: (.*)")


class LongLineError(Exception):
    """A file has a line that is too long to be a message."""


class OddTextError(ValueError):
    """Text whose lines Spark would cut elsewhere."""


class CutFileError(Exception):
    """A file is shorter than it was when its pieces were planned."""


@dataclass(frozen=True)
class Piece:
    """Lines of a file that begin between two places.

    :param number: of the file.
    :param end: None for a packed file, which is read to its end.
    :param longest: bytes of a line, behind the chunk that it begins in.
    """

    path: str
    number: int
    start: int = 0
    end: int | None = None
    longest: int = _LONGEST_LINE


@dataclass(frozen=True)
class Lines:
    """What each task reads: called with the numbers of tasks, it yields tables of ``value, arrival``.

    The place of arrival is the file's number and the line's first byte.

    :param maps: files are mapped, not copied. Where one is cut short meanwhile, the process dies of SIGBUS.
    """

    tasks: tuple[tuple[Piece, ...], ...]
    maps: bool = True

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in self.tasks[number]:
                    yield from _tables(piece, maps=self.maps)

    def that_may_be_long(self) -> Lines:
        """Return the same without files that are too small to have a line that is too long."""
        left = [tuple(p for p in task if _most_bytes(p) > p.longest) for task in self.tasks]
        return Lines(tuple(filter(None, left)), maps=False)

    def check(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read everything and make nothing of it.

        :raises LongLineError: naming the file.
        """
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for piece in self.tasks[number]:
                for _ in _texts(piece, maps=self.maps):
                    pass
        yield from ()

    def cut(self) -> str | None:
        """Return a file that has been cut short meanwhile, and by how much; None if there is none."""
        for piece in (piece for task in self.tasks for piece in task):
            try:
                _check_size(piece, os.path.getsize(piece.path))
            except CutFileError as error:
                return str(error)
            except OSError:
                return f"The file {piece.path} is gone."
        return None


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
        end = None if path.lower().endswith(_PACKED) else os.path.getsize(path)
        files.append(Piece(path, number, 0, end, _LONGEST_LINE))
    total = sum(_size(piece) for piece in files)
    wanted = max(1, min(parallelism, total // _SMALLEST), -(-total // most_bytes))
    return Lines(tuple(_spread(sorted(files, key=lambda p: p.number), -(-total // wanted)))), total


def long_line(error: Exception) -> str | None:
    """Return what a :class:`LongLineError` has said, here or in a task; None if another error is the cause."""
    found = _LONG_LINE.search(f"{type(error).__name__}: {error}")
    return found[1] if found else None


def _most_bytes(piece: Piece) -> int:
    """Bytes of text that a file may have."""
    size = os.path.getsize(piece.path)
    if piece.end is not None:
        return size
    return size * _MOST_RATIO if piece.path.lower().endswith(".gz") else sys.maxsize


def _size(piece: Piece) -> int:
    return os.path.getsize(piece.path) * _RATIO if piece.end is None else piece.end - piece.start


def _spread(files: Sequence[Piece], share: int) -> Iterator[tuple[Piece, ...]]:
    """Fill one task after another."""
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
        raise CutFileError(f"The file {piece.path} had at least {piece.end} bytes and has {size} now.")


def _tables(piece: Piece, *, maps: bool) -> Iterator[pa.Table]:
    for place, text in _texts(piece, maps=maps):
        table = _table(text, (piece.number << PLACE_BITS) + place)
        if table.num_rows:
            yield table


def _texts(piece: Piece, *, maps: bool) -> Iterator[tuple[int, memoryview]]:
    if piece.end is None:
        return _packed(piece)
    return _mapped(piece) if maps else _copied(piece)


def _rest_of_line(file: BinaryIO | GzipFile | BZ2File, piece: Piece) -> bytes:
    """Return what is left of a line.

    :raises LongLineError: it is too much.
    """
    rest = file.readline(piece.longest + 1)
    _check_rest(piece, len(rest))
    return rest


def _check_rest(piece: Piece, length: int) -> None:
    if length > piece.longest:
        raise LongLineError(f"The file {piece.path} has a line of more than {piece.longest} bytes.")


def _mapped(piece: Piece) -> Iterator[tuple[int, memoryview]]:
    """Yield where whole lines of a plain file begin, and their text.

    The pages of the system's cache are decoded as they are, uncopied.
    """
    assert piece.end is not None
    if piece.start == piece.end:
        return
    with open(piece.path, "rb") as file:
        _check_size(piece, os.fstat(file.fileno()).st_size)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # the first line that begins at or behind the start
    place = mapped.find(b"\n", piece.start - 1) + 1 or len(mapped) if piece.start else 0
    while place < piece.end:
        # the line that the last byte is part of belongs to the piece as well
        begun = min(place + _CHUNK, piece.end)
        end = mapped.find(b"\n", begun - 1) + 1 or len(mapped)
        _check_rest(piece, end - begun)
        yield place, memoryview(mapped)[place:end]
        place = end


def _copied(piece: Piece) -> Iterator[tuple[int, memoryview]]:
    """Yield the lines of :meth:`_mapped`, copied."""
    assert piece.end is not None
    with open(piece.path, "rb") as file:
        if piece.start:
            file.seek(piece.start - 1)
            _rest_of_line(file, piece)
        while (place := file.tell()) < piece.end:
            _check_size(piece, os.fstat(file.fileno()).st_size)
            text = file.read(min(_CHUNK, piece.end - place))
            if not text.endswith(b"\n"):
                text += _rest_of_line(file, piece)
            if text:
                yield place, memoryview(text)


def _packed(piece: Piece) -> Iterator[tuple[int, memoryview]]:
    """Yield the same of a packed file."""
    import bz2
    import gzip

    place = 0
    with gzip.open(piece.path) if piece.path.lower().endswith(".gz") else bz2.open(piece.path) as file:
        while text := file.read(_CHUNK):
            if not text.endswith(b"\n"):
                text += _rest_of_line(file, piece)
            yield place, memoryview(text)
            place += len(text)


def _table(text: memoryview, first: int) -> pa.Table:
    """Return lines that are not empty.

    :param first: place of arrival of the first byte.
    :raises OddTextError: a carriage return that ends no line, where Spark would end one.
    """
    import numpy as np
    import pyarrow as pa

    if text[-1] != _NEWLINE:
        text = memoryview(bytes(text) + b"\n")
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE) + 1
    # comparing all is far cheaper than mmap's find
    is_return = letters == _RETURN
    if is_return.any() and (letters[np.flatnonzero(is_return) + 1] != _NEWLINE).any():
        raise OddTextError("lines end with carriage returns")
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    value = pa.Array.from_buffers(pa.string(), len(ends), buffers)
    table = pa.table({"value": value, "arrival": pa.array(bounds[:-1].astype(np.int64) + first)})
    short = np.diff(bounds) < 3
    if not short.any():
        return table
    kept = np.ones(len(ends), bool)
    for line in np.flatnonzero(short):
        kept[line] = bool(bytes(text[bounds[line] : bounds[line + 1]]).strip(b"\r\n"))
    return table.filter(pa.array(kept))
