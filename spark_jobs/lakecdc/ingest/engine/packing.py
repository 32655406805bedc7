"""Pack tables into few binary cells (Arrow's stream format), so that Spark converts no rows between tasks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.engine.layout import COUNTS, Numbers, struct_of
from lakecdc.runtime.worker import settle

#: columns of a frame of packed tables: the group of the rows, facts as JSON, the rows, messages set aside, rejected
#: messages; all but the group may be null
SCHEMA = "grp int, facts string, packed binary, aside binary, rejected binary"
#: columns of messages
MESSAGES = ("aside", "rejected")
# approximate bytes of a cell
_CELL = 1024 * 1024


def cells(table: pa.Table) -> Iterator[pa.Buffer]:
    """Yield a table in cells of bounded size."""
    rows = max(1, _CELL * max(1, table.num_rows) // max(1, table.nbytes))
    for start in range(0, table.num_rows, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.slice(start, rows).combine_chunks())
        yield sink.getvalue()


def packed_rows(group: int, table: pa.Table, facts: str | None, kind: str = "packed") -> Iterator[pa.RecordBatch]:
    """Yield a table as rows of a packed frame, the first with the facts; given facts, an empty one yields a row.

    :param kind: the column of the cells: ``packed``, or one of :data:`MESSAGES`.
    """
    first = facts
    for cell in cells(table):
        yield row(group, first, **{kind: cell})
        first = None
    if first is not None:
        yield row(group, first)


def packed_groups(groups: Numbers, table: pa.Table, facts: str) -> Iterator[pa.RecordBatch]:
    """Yield rows, ordered by group, as rows of a packed frame; the first has the facts.

    :param groups: group of each row, ascending.
    """
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    text: str | None = facts
    for low, high in pairwise(edges):
        group = int(groups[low]) if high else 0
        yield from packed_rows(group, table.slice(low, high - low), text)
        text = None


def row(
    group: int, facts: str | None, packed: pa.Buffer | bytes | None = None, **of_messages: pa.Buffer | bytes
) -> pa.RecordBatch:
    """Return one row of a packed frame, optionally with a cell of :data:`MESSAGES`."""
    columns = {"grp": pa.array([group], pa.int32()), "facts": pa.array([facts], pa.string()), "packed": binary(packed)}
    columns |= {name: binary(of_messages.get(name)) for name in MESSAGES}
    return pa.RecordBatch.from_pydict(columns)


def binary(content: pa.Buffer | bytes | None) -> pa.Array:
    """Return a column of one value, without copying it."""
    if content is None:
        return pa.nulls(1, pa.binary())
    buffer = pa.py_buffer(content)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(struct.pack("=ii", 0, buffer.size)), buffer])


def unpacked(column: pa.Array) -> Iterator[pa.Table]:
    """Yield the tables in packed cells, without copying them."""
    for cell in column:
        if cell.is_valid:
            yield pa.ipc.open_stream(cell.as_buffer()).read_all()


def all_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the tables in the last column of a packed frame."""
    for batch in batches:
        yield from unpacked(batch.column(batch.num_columns - 1))


def rows_of_cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the packed cells in the last column; runs in a task."""
    settle()
    for table in all_of(batches):
        yield from table.to_batches()


def cells_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows as numbered cells, ``cell int, packed binary``; runs in a task."""
    settle()
    packed_cells = (cell for batch in batches for cell in cells(pa.Table.from_batches([batch])))
    for number, cell in enumerate(packed_cells):
        columns = [pa.array([number], pa.int32()), binary(cell)]
        yield pa.RecordBatch.from_arrays(columns, ["cell", "packed"])


@dataclass(frozen=True)
class UnpackTask:
    """Task that unpacks cells to rows of the change frame, of some ops.

    :param whole: include the row of a delete.
    """

    names: tuple[str, ...]
    key: tuple[str, ...]
    only: str
    whole: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for table in all_of(batches):
            chosen = table.filter(pc.is_in(table["op"], pa.array(list(self.only))))
            for batch in chosen.combine_chunks().to_batches():
                of = {name: batch.column(name) for name in batch.schema.names}
                columns = change_columns(of, self.names, self.key, whole=self.whole)
                columns |= {name: of[name] for name in ("order", "time_us", "partition", *COUNTS)}
                # only unfolded events have it
                columns["source_table"] = of.get("source_table", pa.nulls(len(batch), pa.string()))
                yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def change_columns(
    of: Mapping[str, pa.Array], names: Sequence[str], key: Sequence[str], *, whole: bool = False
) -> dict[str, pa.Array]:
    """Return ``op, key, row, open, old_key`` of a change frame from the columns of the engine's layout."""
    # a delete has only its key, unless there is none
    no_row = pc.is_in(of["op"], pa.array(["d", "x"] if key and not whole else ["x"]))
    count, stayed = len(no_row), pc.invert(of["moved"])
    return {
        "op": of["op"],
        "key": struct_of([(name, of[f"k{i}"]) for i, name in enumerate(key)], count),
        "row": struct_of([(name, of[f"c{i}"]) for i, name in enumerate(names)], count, no_row),
        "open": of["open"],
        "old_key": struct_of([(name, of[f"o{i}"]) for i, name in enumerate(key)], count, stayed),
    }
