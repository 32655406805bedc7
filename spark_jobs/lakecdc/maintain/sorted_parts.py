"""Sort rows part by part within bounded memory: each part is a range of keys, and is sorted alone.

Rows are moved to their part as they come, while they are in the processor's caches, and sorted once the part is
complete. Merged runs would move each row once more.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from lakecdc.maintain.run_order import Key, RunOrder
from lakecdc.maintain.sorted_runs import Runs

# memory to sort a part
_RUN_BYTES = 256 * 1024 * 1024


class SortedParts:
    """Rows in parts, spilled to local files beyond a memory budget.

    :param cuts: keys at which each part but the first begins, ascending. They affect cost and memory only: a part that
        does not fit into memory is sorted as runs.
    :param memory_bytes: to use, besides the tables of :meth:`sorted`.
    :param folder: for the files, which closing removes.
    """

    def __init__(self, order: RunOrder, cuts: Sequence[Key], memory_bytes: int, folder: str) -> None:
        self._order, self._cuts, self._folder = order, cuts, folder
        # of one part, while the other parts wait
        self._run_bytes = min(memory_bytes // 2, _RUN_BYTES)
        self._most_bytes = memory_bytes - self._run_bytes
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
            with Runs(self._order, self._run_bytes, self._folder) as runs:
                for file in self._files:
                    for rows in file.read(number):
                        runs.add(rows)
                for rows in self._waiting.pop(number, ()):
                    runs.add(rows)
                yield from runs.merged(table_bytes)

    def _spill(self) -> None:
        """Move the waiting rows to a file."""
        if not self._files:
            folder = tempfile.TemporaryDirectory(prefix="lakecdc-parts-", dir=self._folder)
            self._place = Path(self._open.enter_context(folder))
        path = self._place / f"{len(self._files)}.arrow"
        self._files.append(_SpillFile.write(path, self._waiting))
        self._waiting.clear()
        self._bytes = 0


class _SpillFile:
    """A local file with rows of parts.

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
                for batch in pa.concat_tables(parts.pop(number)).combine_chunks().to_batches():
                    writer.write_batch(batch)
                    written += 1
                places[number] = begin, written
        return cls(path, places)

    def read(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a part, which stay in the page cache."""
        begin, end = self._batches.get(number, (0, 0))
        if begin < end:
            with pa.memory_map(str(self._path)) as mapped, pa.ipc.open_file(mapped) as reader:
                for place in range(begin, end):
                    yield pa.Table.from_batches([reader.get_batch(place)])
