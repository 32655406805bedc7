"""Python tasks that decode a batch.

``DecodeTask`` decodes messages and, if it may, reduces them to the last event of each key; ``FoldTask`` does so with
the rows of one group of keys from several tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.engine import facts, fold, packing
from lakecdc.ingest.engine.decoder import Decoder
from lakecdc.ingest.engine.facts import Facts
from lakecdc.ingest.engine.fold import Grouping, LeftOutError
from lakecdc.ingest.engine.layout import CHECKS, with_order, without_void
from lakecdc.ingest.engine.pieces import OddTextError
from lakecdc.ingest.engine.schemas import SchemaError, first_schema, to_json
from lakecdc.ingest.formats.message_columns import PLACED
from lakecdc.model.order import Marks
from lakecdc.runtime.worker import open_duckdb, settle

if TYPE_CHECKING:
    import duckdb

    from lakecdc.ingest.engine.decoding import Decoding

# rows at which a task folds its buffer, and rows after the fold at which it flushes them
_MANY_ROWS, _MANY_KEYS = 600_000, 400_000
# bytes of rows at which it also folds; if half of them remain, it flushes them
_MANY_BYTES = 256 * 1024 * 1024

#: group of unfolded events in a packed frame
EVERY = -1
#: why tasks cannot fold events that the table may have
BEHIND_STORED = "values are left out after events that the table may have"
#: yields messages, given the rows that Spark passes to a task
Read = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class OddError(Exception):
    """A task cannot decode the batch in this way."""


@dataclass(frozen=True)
class Buffering:
    """Options for buffering rows in a task.

    :param grouping: how the keys of folded rows are grouped; None without a fold.
    :param every: also output every event, in the group :data:`EVERY`.
    :param alone: there is only this task, so no further fold is needed.
    :param partitioned: report stretches of the partitions of topics.
    :param schema: the columns of the messages' schema as in facts; None for changes of any schema.
    :param marks: highest order keys applied to the table, for folded rows that may leave values out; else None.
    :param is_log: the rows are of one log; report the lowest order key of folded rows.
    :param sets_aside: output odd and rejected messages; otherwise skip them.
    """

    grouping: Grouping | None
    epoch: int
    names: Sequence[str]
    every: bool
    alone: bool = False
    partitioned: bool = False
    schema: str | None = None
    marks: Marks | None = None
    is_log: bool = False
    sets_aside: bool = True

    @classmethod
    def of(
        cls, decoding: Decoding, grouping: Grouping | None, marks: Marks, *, every: bool = False, alone: bool = False
    ) -> Buffering:
        """Return the options for events of messages.

        :param marks: highest order keys applied to the table.
        """
        return cls(
            grouping,
            decoding.reading.epoch,
            [field.name for field in decoding.fields],
            every,
            alone,
            partitioned=decoding.keyed and decoding.judged is None,
            marks=marks if decoding.large_fields else None,
        )


@dataclass(frozen=True)
class DecodeTask:
    """Task that decodes messages to a packed frame.

    :param read: reads the messages named in the input; None if the input has the messages.
    :param void_below: order key of a TRUNCATE; what was before it is not folded.
    """

    decoding: Decoding
    read: Read | None
    buffering: Buffering
    void_below: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode until the input ends, or a message requires another way to decode the batch."""
        settle()
        try:
            yield from self._packed(self.read(batches) if self.read else iter(batches))
        except (OddError, OddTextError, SchemaError) as error:
            yield packing.row(EVERY if self.buffering.every else 0, Facts(odd=str(error)).to_json(), None)

    def _packed(self, messages: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(messages, None)
        if first is None:
            return
        decoding = self.decoding
        if decoding.judged is None:
            schema = first_schema(first, decoding)
            if schema is not None:
                decoding = decoding.with_schema(schema)
            decoding = decoding.with_names(first)
        decoder = Decoder(decoding)
        buffering = replace(self.buffering, schema="" if decoding.schema is None else to_json(decoding.schema))
        events = _checked(decoder.decode(chain([first], messages)), decoding)
        yield from buffered(buffering, events, lambda batch: without_void(batch, self.void_below))
        if decoder.moves:
            group = 0 if buffering.grouping else EVERY
            yield packing.row(group, Facts(moves=decoder.moves).to_json(), None)


def _checked(batches: Iterable[pa.RecordBatch], decoding: Decoding) -> Iterator[pa.RecordBatch]:
    """Yield events.

    :raises OddError: an event must be set aside and cannot be.
    """
    for batch in batches:
        odd = batch.column("odd")
        if odd.null_count < len(odd) and not decoding.sets_aside:
            raise OddError(odd.drop_null()[0].as_py())
        yield batch


def buffered(
    of: Buffering,
    batches: Iterable[pa.RecordBatch],
    to_fold: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
) -> Iterator[pa.RecordBatch]:
    """Yield events as rows of a packed frame, until they end or cannot be folded.

    :param to_fold: returns the events of a batch to fold.
    """
    kinds = [of] if of.grouping or of.every else []
    if of.grouping and of.every:
        kinds = [replace(of, grouping=None, partitioned=False, sets_aside=False), of]
    with open_duckdb() as connection:
        buffers = [RowBuffer(kind, connection) for kind in kinds]
        try:
            for batch in batches:
                for buffer in buffers:
                    yield from buffer.add(to_fold(batch) if buffer.folds else batch)
            for buffer in buffers:
                yield from buffer.flush()
        except LeftOutError as error:
            yield packing.row(0, Facts(left_out=str(error)).to_json(), None)


class RowBuffer:
    """The buffered rows of a task."""

    def __init__(self, buffering: Buffering, connection: duckdb.DuckDBPyConnection) -> None:
        self._of, self._connection = buffering, connection
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._tables: set[str] = set()
        self._facts = Facts()
        self._leaves_out = False

    @property
    def folds(self) -> bool:
        return self._of.grouping is not None

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows, and flush if there are too many.

        :raises LeftOutError: they cannot be folded.
        """
        odd = batch.column("odd").is_valid()
        if odd.true_count:
            if self._of.sets_aside:
                yield from self._set_aside(batch.filter(odd))
            batch = batch.filter(pc.invert(odd))
        self._tables |= {name for name in pc.unique(batch.column("source_table")).to_pylist() if name}
        if self._of.partitioned:
            self._note(Facts(stretches=facts.stretches(batch, self._of.epoch)))
        rejected = batch.column("rejected").is_valid()
        if rejected.true_count:
            if self._of.sets_aside:
                yield from self._reject(batch.filter(rejected))
            batch = batch.filter(pc.invert(rejected))
        if self._of.grouping is not None and self._of.marks is not None:
            self._check(batch, self._of.marks)
        elif self._of.grouping is not None and self._of.is_log:
            self._note(Facts(first_orders=facts.first_orders(batch, self._of.epoch)))
        # an unfolded event keeps its source table
        checks = [name for name in CHECKS if self.folds or name != "source_table"]
        self._hold([batch.drop_columns(checks)])
        if self._of.grouping is None:
            yield from self.flush()
        elif self._rows >= _MANY_ROWS or (self._bytes >= _MANY_BYTES and not self._of.alone):
            table = self._drain()
            self._hold(fold.take_rows(table, fold.needed_places(self._connection, table)).to_batches())
            if (self._rows >= _MANY_KEYS or self._bytes >= _MANY_BYTES // 2) and not self._of.alone:
                yield from self.flush()

    def _note(self, more: Facts) -> None:
        if more != Facts():
            self._facts = facts.merged([self._facts, more])

    def _check(self, batch: pa.RecordBatch, marks: Marks) -> None:
        """Check that earlier events of the keys, or the table, have the values that events leave out."""
        self._note(Facts(first_orders=facts.first_orders(batch, self._of.epoch)))
        if fold.has_open(batch):
            fold.check_left_out(batch)
            self._leaves_out = True
        if self._leaves_out and marks.may_hold(self._facts.first_orders):
            raise LeftOutError(BEHIND_STORED)

    def _set_aside(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        about = Facts(aside=batch.num_rows, why=batch.column("odd")[0].as_py())
        messages = pa.Table.from_batches([_messages(batch)])
        yield from packing.packed_rows(self._group, messages, about.to_json(), "aside")

    def _reject(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        messages = pa.Table.from_batches([_messages(batch)])
        messages = messages.append_column("rejected", batch.column("rejected"))
        yield from packing.packed_rows(self._group, messages, facts.of_rejected(batch).to_json(), "rejected")

    @property
    def _group(self) -> int:
        return EVERY if self._of.grouping is None else 0

    def flush(self) -> Iterator[pa.RecordBatch]:
        if not self._rows and self._facts == Facts():
            return
        grouping = self._of.grouping
        common, self._facts = self._facts, Facts()
        schemas = () if self._of.schema is None else (self._of.schema,)
        known = facts.merged([common, Facts(schemas=schemas, tables=tuple(self._tables))])
        if not self._rows:
            # facts if all events are rejected
            yield packing.row(self._group, known.to_json(), None)
            return
        table = self._drain()
        if grouping is None:
            yield from finished(self._connection, table, self._of.epoch, known, folded=False)
        elif self._of.alone:
            places = grouping.with_partitions(fold.last_places(self._connection, table))
            by_key, filled = fold.folded(self._connection, table, self._of.names, places)
            known = facts.merged([known, Facts(filled=filled)])
            yield from finished(self._connection, by_key, self._of.epoch, known, folded=True)
        else:
            places = grouping.with_partitions(fold.needed_places(self._connection, table))
            groups = grouping.groups(places)
            order = np.argsort(groups, kind="stable")
            rows = fold.take_rows(table, places.take(pa.array(order)))
            yield from packing.packed_groups(groups[order], rows, known.to_json())

    def _hold(self, batches: list[pa.RecordBatch]) -> None:
        self._batches += batches
        self._rows += sum(batch.num_rows for batch in batches)
        self._bytes += sum(batch.nbytes for batch in batches)

    def _drain(self) -> pa.Table:
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        return pa.Table.from_batches(batches)


def _messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the messages of events."""
    messages = pa.RecordBatch.from_struct_array(batch.column("message"))
    return messages.select([name for name in messages.schema.names if name != PLACED])


@dataclass(frozen=True)
class FoldTask:
    """Task that folds packed rows of whole groups and orders them by key."""

    epoch: int
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold all groups of the task together."""
        settle()
        parts: list[Facts] = []
        tables: list[pa.Table] = []
        for batch in batches:
            parts += [facts.from_json(text) for text in batch.column("facts").to_pylist() if text]
            tables += packing.unpacked(batch.column("packed"))
            for name in packing.MESSAGES:
                for cell in batch.column(name).drop_null().to_pylist():
                    yield packing.row(0, None, None, **{name: cell})
        together = facts.merged(parts)
        if together.odd or together.left_out or not tables:
            if parts:
                yield packing.row(0, together.to_json(), None)
            return
        with open_duckdb() as connection:
            try:
                rows, filled = fold.folded(connection, pa.concat_tables(tables), self.names)
            except LeftOutError as error:
                yield packing.row(0, Facts(left_out=str(error)).to_json(), None)
                return
            together = facts.merged([together, Facts(filled=filled)])
            yield from finished(connection, rows, self.epoch, together, folded=True)


def finished(
    connection: duckdb.DuckDBPyConnection, table: pa.Table, epoch: int, known: Facts, *, folded: bool
) -> Iterator[pa.RecordBatch]:
    """Yield rows with order keys, packed, and their facts."""
    table = with_order(table, epoch)
    connection.register("ordered", table)
    measured = facts.measured(connection, "ordered", folded=folded)
    yield from packing.packed_rows(0 if folded else EVERY, table, facts.merged([known, measured]).to_json())
