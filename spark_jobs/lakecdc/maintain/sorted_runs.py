"""Merge sorted runs of rows within bounded memory: external merge sort over Arrow tables."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from lakecdc.maintain.run_order import Keys, RunOrder

#: bytes of a run that a merge compares at once
_BLOCK_BYTES = 4 * 1024 * 1024
# Arrow's texts and bytes have 32-bit offsets
_MOST_BYTES = 1024 * 1024 * 1024


class Runs:
    """Sorted runs of rows, spilled to local files beyond a memory budget.

    :param order: of the rows of each run; without fields they stay in the order of :meth:`add`.
    :param memory_bytes: to use, besides the tables of :meth:`merged`.
    :param folder: for the files, which closing removes.
    """

    def __init__(self, order: RunOrder, memory_bytes: int, folder: str, block_bytes: int = _BLOCK_BYTES) -> None:
        self._order, self._folder = order, folder
        # during a sort rows are in memory twice, one of their columns three times
        self._most_bytes = min(memory_bytes // 3, _MOST_BYTES)
        self._block_bytes = min(block_bytes, max(1, memory_bytes // 8))
        self._most_runs = max(2, memory_bytes // (2 * self._block_bytes))
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._files: list[Path] = []
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._tables, self._files = [], []
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None

    def add(self, run: pa.Table) -> None:
        """Add rows, which follow equal rows of earlier runs; rows in memory are sorted together."""
        if not run.num_rows:
            return
        if self._tables and self._bytes + run.nbytes > self._most_bytes:
            self._files.append(self._write(self._blocks(self._take_tables())))
        self._tables.append(run)
        self._bytes += run.nbytes

    def merged(self, table_bytes: int) -> Iterator[pa.Table]:
        """Yield all rows in order, in tables of about so many bytes; call it once."""
        while len(self._files) > self._most_runs:
            self._merge_files()
        runs: list[Iterable[pa.Table]] = [_read(file) for file in self._files]
        if self._tables:
            runs.append(self._blocks(self._take_tables()))
        pending: list[pa.Table] = []
        size = 0
        for table in self._merge(runs):
            pending.append(table)
            size += table.nbytes
            if size >= table_bytes:
                yield pa.concat_tables(pending)
                pending, size = [], 0
        if pending:
            yield pa.concat_tables(pending)

    def _take_tables(self) -> pa.Table:
        """Return the rows in memory as one run."""
        rows = pa.concat_tables(self._tables)
        self._tables, self._bytes = [], 0
        return self._order.sorted(rows)

    def _merge_files(self) -> None:
        """Merge neighbouring files, to reduce their number."""
        merged = []
        for begin in range(0, len(self._files), self._most_runs):
            group = self._files[begin : begin + self._most_runs]
            merged.append(self._write(self._merge([_read(file) for file in group])))
            for file in group:
                file.unlink()
        self._files = merged

    def _write(self, blocks: Iterable[pa.Table]) -> Path:
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="lakecdc-runs-", dir=self._folder)
        file = Path(self._temporary.name, f"{next(self._numbers)}.arrow")
        with contextlib.ExitStack() as stack:
            writer = None
            for block in blocks:
                if writer is None:
                    writer = stack.enter_context(pa.ipc.new_file(str(file), block.schema))
                for batch in block.combine_chunks().to_batches():
                    writer.write_batch(batch)
        return file

    def _blocks(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Slice rows into blocks."""
        step = max(1, rows.num_rows * self._block_bytes // max(1, rows.nbytes))
        for begin in range(0, rows.num_rows, step):
            yield rows.slice(begin, step)

    def _merge(self, runs: Iterable[Iterable[pa.Table]]) -> Iterator[pa.Table]:
        if not self._order.fields:
            yield from itertools.chain.from_iterable(runs)
            return
        heads = [head for run in runs if (head := _Head.of(self._order, iter(run)))]
        while len(heads) > 1:
            # of equal keys the first run comes first, with all its equal rows
            leader = min(heads, key=lambda head: head.last)
            at, last = heads.index(leader), leader.last
            parts = [head.pop(last, number <= at) for number, head in enumerate(heads)]
            rows = [part for part in parts if part.num_rows]
            yield rows[0] if len(rows) == 1 else self._order.sorted(pa.concat_tables(rows))
            heads = [head for head in heads if head.refill()]
        for head in heads:
            yield from head.rest()


class _Head:
    """The next rows of a run, with their keys."""

    def __init__(self, order: RunOrder, blocks: Iterator[pa.Table], rows: pa.Table) -> None:
        self._order, self._blocks = order, blocks
        self._set(rows)

    @classmethod
    def of(cls, order: RunOrder, blocks: Iterator[pa.Table]) -> _Head | None:
        first = next(blocks, None)
        return None if first is None else cls(order, blocks, first)

    def _set(self, rows: pa.Table) -> None:
        self._rows, self._begin = rows, 0
        self._keys: Keys = self._order.keys(rows)
        self.last = self._keys(rows.num_rows - 1)

    def pop(self, key: tuple[object, ...], with_equal: bool) -> pa.Table:
        """Return the next rows below a key, optionally including equal rows."""
        end = self._keys.count_up_to(key) if with_equal else self._keys.count_below(key)
        part = self._rows.slice(self._begin, end - self._begin)
        self._begin = end
        return part

    def refill(self) -> bool:
        """Read the next block if no row is left; return whether there are rows."""
        if self._begin < self._rows.num_rows:
            return True
        rows = next(self._blocks, None)
        if rows is not None:
            self._set(rows)
        return rows is not None

    def rest(self) -> Iterator[pa.Table]:
        """Yield the remaining rows."""
        yield self._rows.slice(self._begin)
        yield from self._blocks


def _read(file: Path) -> Iterator[pa.Table]:
    """Yield the blocks of a file, which stay in the page cache."""
    with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as reader:
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])
