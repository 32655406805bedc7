"""Sort rows part by part within bounded memory: each part is a range of keys, and is sorted alone.

Rows are moved to their part as they come, while they are in the processor's caches, and sorted once the part is
complete. To merge sorted runs would move each row once more.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from lakecdc.maintain.run_order import Key, RunOrder

# bytes of a part that is sorted at once; meanwhile its rows are in memory twice, one of their columns three times
_SORTED_BYTES = 96 * 1024 * 1024
_COPIES = 3
# rows of a larger part that show where to divide it, and most keys at which it is divided
_SAMPLED, _MOST_DIVIDED = 10_000, 100


class SortedParts:
    """Rows in parts, spilled to local files beyond a memory budget.

    :param cuts: keys at which each part but the first begins, ascending. They affect cost and memory only: a part that
        is too large to be sorted at once is divided again.
    :param memory_bytes: to use, besides the tables of :meth:`sorted`.
    :param folder: for the files, which closing removes.
    """

    def __init__(self, order: RunOrder, cuts: Sequence[Key], memory_bytes: int, folder: str) -> None:
        self._order, self._cuts, self._folder = order, cuts, folder
        # of one part, while the other parts wait
        self._sorted_bytes = min(memory_bytes // (2 * _COPIES), _SORTED_BYTES)
        self._most_bytes = memory_bytes - self._sorted_bytes * _COPIES
        self._waiting: dict[int, list[pa.Table]] = defaultdict(list)
        self._bytes = 0
        self._files: list[_SpillFile] = []
        self._open = ExitStack()

    def __enter__(self) -> SortedParts:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        self._files.clear()
        self._open.close()

    def add(self, rows: pa.Table) -> None:
        """Add sorted rows, which follow equal rows of earlier calls."""
        if self._bytes and self._bytes + rows.nbytes > self._most_bytes:
            self._spill()
        for number, part in self._order.cut(rows, self._cuts):
            self._waiting[number].append(part)
        self._bytes += rows.nbytes

    def sorted(self, table_bytes: int) -> Iterator[pa.Table]:
        """Yield all rows in order, in tables of about so many bytes; call it once."""
        for number in range(len(self._cuts) + 1):
            yield from self._part(number, table_bytes)
            self._waiting.pop(number, None)

    def _part(self, number: int, table_bytes: int) -> Iterator[pa.Table]:
        if sum(rows.nbytes for rows in self._rows(number)) > self._sorted_bytes:
            yield from self._divided(number, table_bytes)
        elif tables := list(self._rows(number)):
            rows = self._order.sorted(pa.concat_tables(tables))
            step = max(1, rows.num_rows * table_bytes // max(1, rows.nbytes))
            for begin in range(0, rows.num_rows, step):
                yield rows.slice(begin, step)

    def _divided(self, number: int, table_bytes: int) -> Iterator[pa.Table]:
        """Yield the rows of a part that is too large to be sorted at once."""
        count, size = (
            sum(values) for values in zip(*((t.num_rows, t.nbytes) for t in self._rows(number)), strict=True)
        )
        step = max(1, count // _SAMPLED)
        keys = [t.select(self._order.sources).take(pa.array(range(0, t.num_rows, step))) for t in self._rows(number)]
        sample = self._order.sorted(pa.concat_tables(keys))
        key_at, outputs = self._order.keys(sample), min(2 + size // max(1, self._sorted_bytes // 2), _MOST_DIVIDED)
        chosen = dict.fromkeys(key_at(sample.num_rows * place // outputs) for place in range(1, outputs))
        # every other part has rows of one key, which are in order: no row's key is between a key and the same with more
        cuts = [cut for key in chosen for cut in (key, (*key, 0))]
        with SortedParts(self._order, cuts, self._sorted_bytes * _COPIES, self._folder) as parts:
            for rows in self._rows(number):
                parts.add(rows)
            for place in range(len(cuts) + 1):
                yield from parts._rows(place) if place % 2 else parts._part(place, table_bytes)
                parts._waiting.pop(place, None)

    def _rows(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a part as they were added."""
        for file in self._files:
            yield from file.read(number)
        yield from self._waiting.get(number, ())

    def _spill(self) -> None:
        """Move the waiting rows to a file."""
        if not self._files:
            folder = tempfile.TemporaryDirectory(prefix="lakecdc-parts-", dir=self._folder)
            self._place = Path(self._open.enter_context(folder))
        self._files.append(_SpillFile.write(self._place / f"{len(self._files)}.arrow", self._waiting))
        self._waiting.clear()
        self._bytes = 0


class _SpillFile:
    """A local file that holds rows of several parts.

    :param batches: the first batch of each part and the one after its last.
    """

    def __init__(self, path: Path, batches: dict[int, tuple[int, int]]) -> None:
        self._path, self._batches = path, batches

    @classmethod
    def write(cls, path: Path, parts: dict[int, list[pa.Table]]) -> _SpillFile:
        places: dict[int, tuple[int, int]] = {}
        schema, written = next(iter(parts.values()))[0].schema, 0
        with pa.ipc.new_file(str(path), schema) as writer:
            for number in list(parts):
                begin = written
                for rows in parts.pop(number):
                    for batch in rows.combine_chunks().to_batches():
                        writer.write_batch(batch)
                        written += 1
                places[number] = begin, written
        return cls(path, places)

    def read(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a part as they were added; they stay in the page cache."""
        begin, end = self._batches.get(number, (0, 0))
        if begin < end:
            with pa.memory_map(str(self._path)) as mapped, pa.ipc.open_file(mapped) as reader:
                for place in range(begin, end):
                    yield pa.Table.from_batches([reader.get_batch(place)])
