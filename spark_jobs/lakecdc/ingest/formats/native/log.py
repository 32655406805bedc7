"""Events of a database's log, which come decoded to texts: Arrow types them, then they are folded as messages are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.change import OddValueError
from lakecdc.ingest.formats.native import packing
from lakecdc.ingest.formats.native.decoder import CHECKS
from lakecdc.ingest.formats.native.engine import Native
from lakecdc.ingest.formats.native.facts import Facts
from lakecdc.ingest.formats.native.grouping import Grouping, grouping
from lakecdc.ingest.formats.native.layout import COUNTS, OPS
from lakecdc.ingest.formats.native.packed import gathered
from lakecdc.ingest.formats.native.placeholders import LeftOutError
from lakecdc.ingest.formats.native.tasks import EVERY, Holding, OddError, holders
from lakecdc.ingest.formats.values import Field
from lakecdc.model.order import RANK_CHANGE, moment, order_key
from lakecdc.runtime.worker import duckdb_of_its_own, settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target

#: why a table's events are the JVM's
LEFT_OUT = "an update of a key leaves values out that it did not touch"
# rows that are typed in one step, and their bytes
_ROWS, _BYTES = 65_536, 32 * 1024 * 1024
# events and bytes that one task types, and that one folds; it holds its rows about six times meanwhile
_TYPED_AT_ONCE = 200_000, 64 * 1024 * 1024
_FOLDED_AT_ONCE = 250_000, 64 * 1024 * 1024

#: values of texts: from the texts, the name of the source's type, the Spark SQL type and the column's name; raises
#: :class:`OddValueError` at one that Spark has to judge
Converted = Callable[["pa.Array", str, str, str], "pa.Array"]


@dataclass(frozen=True)
class LogColumn:
    """A column of the target.

    :param place: among the texts of a row.
    :param base: name of its type at the source.
    :param type: Spark SQL type.
    """

    name: str
    place: int
    base: str
    type: str


@dataclass(frozen=True)
class LogLayout:
    """How the decoded events of a table tell its rows.

    :param key: for each key column its place among ``columns``, and among the old texts.
    :param position: name of the column of positions.
    :param time: name of the column of times.
    :param unit: microseconds of a unit of time.
    :param end: position from which on events are not of the round any more.
    :param void_below: position, ordinal and time in milliseconds of a TRUNCATE; what was before it is not folded.
    """

    columns: tuple[LogColumn, ...]
    key: tuple[tuple[int, int], ...]
    converted: Converted
    position: str
    time: str
    unit: int
    end: int
    void_below: tuple[int, int, int] | None = None

    def typed(self, table: pa.Table) -> pa.Table:
        """Return the events of a table in the engine's layout, with the columns of its checks.

        :raises OddError: a key that is null, or one that an update changes while it leaves values out.
        :raises OddValueError: a value that Spark has to judge.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        table = table.filter(pc.less(table[self.position], self.end)).combine_chunks()
        count = table.num_rows
        of = {name: _whole(table[name]) for name in table.column_names}
        gone, moved = pc.equal(of["kind"], "d"), of["moved"]
        opened = of.get("open", pa.nulls(count, pa.list_(pa.string())))
        if pc.any(pc.and_(moved, opened.is_valid())).as_py():
            raise OddError(LEFT_OUT)
        texts = [
            pc.list_element(of["new"], column.place) if count else pa.nulls(0, pa.string()) for column in self.columns
        ]
        found = {f"c{i}": self._values(column, texts[i]) for i, column in enumerate(self.columns)}
        some_gone, some_moved = pc.any(gone).as_py(), pc.any(moved).as_py()
        for i, (place, old_place) in enumerate(self.key):
            column, key = self.columns[place], found[f"c{place}"]
            old = pc.list_element(of["old"], old_place) if some_gone or some_moved else None
            if some_gone:
                key = self._values(column, pc.if_else(gone, old, texts[place]))
            if key.null_count:
                raise OddError(f"the key column {column.name} is null")
            of_old = self._values(column, pc.if_else(moved, old, None)) if some_moved else pa.nulls(count, key.type)
            found |= {f"k{i}": key, f"o{i}": of_old}
        times = pc.multiply(of[self.time], self.unit)
        if count and pc.min(times).as_py() < 0:
            raise OddError("a time before 1970")
        facts = {
            "op": of["kind"],
            "open": opened,
            "moved": moved,
            "pos": of[self.position],
            "ord": of["ordinal"],
            "rank": pa.repeat(pa.scalar(RANK_CHANGE, pa.int8()), count),
            "time_ms": pc.divide(times, 1000),
            "arrival": pa.repeat(pa.scalar(0, pa.int64()), count),
            "time_us": times,
            "partition": pa.repeat("log", count),
            **{name: pc.equal(of["kind"], name[-1]).cast(pa.int32()) for name in COUNTS},
            **dict.fromkeys(CHECKS, pa.nulls(count, pa.string())),
        }
        return pa.table(found | facts)

    def folded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the typed events that are to be folded."""
        import pyarrow.compute as pc

        if self.void_below is None:
            return batch
        position, ordinal, _time = self.void_below
        at, there = batch.column("pos"), batch.column("ord")
        later = pc.and_(pc.equal(at, position), pc.greater_equal(there, ordinal))
        return batch.filter(pc.or_(pc.greater(at, position), later))

    def _values(self, column: LogColumn, texts: pa.Array) -> pa.Array:
        return self.converted(texts, column.base, column.type, column.name)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column that was combined."""
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


@dataclass(frozen=True)
class LogTask:
    """Cells of decoded events in, a packed frame out.

    :param grouping: how the keys of folded rows are told apart; None if none are wanted.
    :param alone: there is no other task, so that the rows need no further fold.
    :param every: every event is wanted, in the group :data:`EVERY`.
    """

    layout: LogLayout
    grouping: Grouping | None
    epoch: int
    alone: bool
    every: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Type and fold, until the input ends or something is met that is for the JVM."""
        settle()
        try:
            with duckdb_of_its_own() as connection:
                names = [column.name for column in self.layout.columns]
                held = holders(Holding(self.grouping, self.epoch, names, self.alone), connection, every=self.every)
                for table in _slices(packing.all_of(batches)):
                    for batch in self.layout.typed(table).to_batches():
                        for one in held:
                            yield from one.add(self.layout.folded(batch) if one.folds else batch)
                for one in held:
                    yield from one.rest()
        except (OddError, OddValueError, LeftOutError) as error:
            yield packing.row(EVERY if self.every else 0, Facts(odd=str(error)).to_json(), None)


def _slices(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Cells gathered into tables that are worth a vector."""
    import pyarrow as pa

    gathered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        gathered.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield pa.concat_tables(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.concat_tables(gathered)


@dataclass(frozen=True)
class LogSize:
    """How much of a round is one table's.

    :param events: how many it has.
    :param bytes: of them all, about.
    """

    events: int
    bytes: int

    def tasks(self, events: int, size: int) -> int:
        """Tasks that they are worth.

        :param events: for one of them.
        :param size: bytes for one of them.
        """
        return max(1, -(-self.events // events), -(-self.bytes // size))


def fold_log(
    cells: DataFrame, layout: LogLayout, size: LogSize, target: Target, partition_by: Sequence[str], epoch: int
) -> Native:
    """Make changes of the events of a table in a round, or tell why not.

    :param cells: its cells, in one partition; their columns ``cell`` and ``packed`` are read.
    :param target: tells whether they are to be folded, and whether every event is wanted.
    :param partition_by: the target's partition transforms in SQL.
    :param epoch: of the order keys.
    """
    names = [layout.columns[place].name for place, _ in layout.key]
    types = [layout.columns[place].type for place, _ in layout.key]
    tasks = size.tasks(*_TYPED_AT_ONCE)
    shares = max(size.tasks(*_FOLDED_AT_ONCE), min(tasks, cells.sparkSession.sparkContext.defaultParallelism))
    groups, alone = grouping(partition_by, names, types, shares), tasks == 1
    # where every event is cleaned on the way, it is folded after that
    cleaned_log = bool(target.history_table and target.clean)
    every, folds = not target.keyed or bool(target.history_table), target.keyed and not cleaned_log
    if folds and not names:
        return Native(reason="the table has no key")
    if not alone:
        # dealt out in the same way if they have to be read again
        cells = cells.repartitionById(tasks, (F.col("cell") % tasks).cast("int"))
    task = LogTask(layout, groups if folds else None, epoch, alone, every)
    typed = cells.select("packed").mapInArrow(task, packing.SCHEMA)
    fields = tuple(Field(column.name, column.type) for column in layout.columns)
    found = gathered(typed, None if alone else groups, epoch, fields, every=every, folds=folds)
    refused = found.told.odd or found.told.left_out
    if refused:
        found.release()
        return Native(reason=refused)
    told, rows, place = found.told, found.rows(fields, tuple(names), groups), layout.void_below
    if folds and place:
        rows = replace(rows, void_below=order_key(epoch, *place[:2], time=place[2]))
    return Native(
        rows,
        events=sum(told.events[op] for op in OPS),
        newest=moment(told.newest) if told.newest is not None else None,
        high_orders=told.high_orders,
        kept=found.kept,
    )
