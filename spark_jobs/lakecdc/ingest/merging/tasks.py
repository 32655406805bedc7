"""Tasks that convert events and rows to contributions, and contributions to rows, packed between the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.facts import Facts
from lakecdc.ingest.engine.fold import Grouping, columns
from lakecdc.ingest.engine.layout import COUNTS, struct_of
from lakecdc.ingest.merging.combine import REMEMBERED, SEPARATOR, STORED, Rules, combine
from lakecdc.runtime.worker import open_duckdb, settle
from lakecdc.writer.files import slices

# bytes of merged rows packed at once
_BYTES = 16 * 1024 * 1024
_MOMENT = pa.timestamp("us", "UTC")


class EventFacts(msgspec.Struct, frozen=True):
    """Facts about the events of a batch.

    :param left_out: columns that some event leaves out.
    :param moved_open: number of key updates that leave columns out.
    :param of_no_table: number of events without a source table that feeds a group, if groups have source tables.
    """

    left_out: frozenset[str] = frozenset()
    moved_open: int = 0
    deletes: int = 0
    of_no_table: int = 0

    def __add__(self, other: EventFacts) -> EventFacts:
        numbers = (self.moved_open + other.moved_open, self.deletes + other.deletes)
        return EventFacts(self.left_out | other.left_out, *numbers, self.of_no_table + other.of_no_table)


@dataclass(frozen=True)
class Contributing:
    """Layout and grouping of contributions.

    :param types: types of the table's columns and order columns.
    """

    rules: Rules
    grouping: Grouping
    types: pa.Schema

    def contributions(
        self, named: Mapping[str, pa.Array], beside: Mapping[str, pa.Array], no_row: pa.Array | None = None
    ) -> pa.Table:
        """Return contributions, see :func:`~lakecdc.ingest.merging.combine.combine`.

        :param named: values by column name; other columns are null.
        :param beside: further columns.
        :param no_row: contributions without a row.
        """
        count = len(beside["op"])
        values = {f.name: named[f.name] if f.name in named else pa.nulls(count, f.type) for f in self.types}
        values = {name: array.cast(self.types.field(name).type) for name, array in values.items()}
        key = struct_of([(name, values[name]) for name in self.rules.key], count)
        return pa.table({"key": key, "row": struct_of([*values.items()], count, no_row), **beside})

    def grouped(self, contributions: pa.Table, facts: str = "") -> Iterator[pa.RecordBatch]:
        """Yield contributions by groups of their keys, as rows of a packed frame."""
        placed = self.placed(contributions["key"].combine_chunks())
        with open_duckdb() as connection:
            connection.register("placed", placed)
            names = ", ".join(columns(placed, "k"))
            sql = f"SELECT (hash({names}) % 2147483647)::BIGINT AS hash FROM placed"
            placed = placed.append_column("hash", connection.execute(sql).to_arrow_table()["hash"])
        groups = self.grouping.groups(placed)
        order = np.argsort(groups, kind="stable")
        yield from packing.packed_groups(groups[order], contributions.take(pa.array(order)), facts)

    def arrange(self, key: pa.Array) -> pa.Array:
        """Return the places of keys ordered by partition values and keys."""
        placed = self.placed(key)
        by = [*columns(placed, "p"), *columns(placed, "k")]
        return pc.sort_indices(placed, [(name, "ascending") for name in by])

    def placed(self, key: pa.Array) -> pa.Table:
        """Return the columns ``k0`` … and ``p0`` … of keys."""
        return self.grouping.with_partitions(self.keyed(key))

    def keyed(self, key: pa.Array) -> pa.Table:
        """Return the columns ``k0`` … of keys."""
        return pa.table({f"k{i}": pc.struct_field(key, name) for i, name in enumerate(self.rules.key)})


@dataclass(frozen=True)
class Origin:
    """Source tables of a job's events.

    :param only: source table of events that name none; None if there may be several.
    :param feeding: allowed source tables; any if empty.
    """

    only: str | None = None
    feeding: tuple[str, ...] = ()

    def tables(self, at: Mapping[str, pa.Array]) -> pa.Array:
        """Return the source tables of events; an event without one has the only table, or that of its topic's name.

        It is null for events of other tables.
        """
        partition = at["partition"].dictionary_encode()
        topics = pa.array([place.rpartition("/")[0] or None for place in partition.dictionary.to_pylist()], pa.string())
        only = pa.scalar(self.only, pa.string())
        tables = pc.coalesce(at["source_table"], topics.take(partition.indices), only)
        if not self.feeding:
            return tables
        whole = pc.binary_join_element_wise("", tables, ".")
        feeds = reduce(pc.or_, (pc.ends_with(whole, f".{name}") for name in self.feeding))
        return pc.if_else(feeds, tables, None)


@dataclass(frozen=True)
class EventsTask:
    """Task that converts events to packed contributions, with :class:`EventFacts`; ``aside`` has their keys.

    :param names: names of the row's columns, ``c0`` … of the events.
    :param packed: the events are packed; otherwise ``open`` is text.
    """

    of: Contributing
    names: tuple[str, ...]
    packed: bool
    origin: Origin = Origin()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for events in slices(packing.all_of(batches) if self.packed else _tables(batches)):
            # tombstones
            events = events.filter(pc.not_equal(events["op"], "x")).combine_chunks()
            if events.num_rows:
                yield from self._contributed({name: _whole(events[name]) for name in events.column_names})

    def _contributed(self, at: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        merge, is_delete = self.of.rules.merge, pc.equal(at["op"], "d")
        texts = pc.binary_join(at["open"], SEPARATOR) if self.packed else at["open"]
        is_open = pc.and_(texts.is_valid(), pc.invert(is_delete))
        by_table = merge.by_source_table
        source_table = self.origin.tables(at) if by_table else pa.nulls(len(is_delete), pa.string())
        facts = EventFacts(
            frozenset(pc.unique(pc.split_pattern(texts.filter(is_open), SEPARATOR).flatten()).to_pylist()),
            pc.and_(is_open, at["moved"]).true_count,
            is_delete.true_count,
            source_table.null_count if by_table else 0,
        )
        named = {name: at[f"c{i}"] for i, name in enumerate(self.names)}
        named |= {name: at[f"k{i}"] for i, name in enumerate(self.of.rules.key)}
        beside = {"op": at["op"], "order": at["order"], "source_time": at["time_us"].cast(_MOMENT)}
        beside |= {"source_table": source_table, "open": texts}
        contributions = self.of.contributions(named, beside, is_delete)
        if merge.on_delete == "ignore":
            contributions = contributions.filter(pc.invert(is_delete))
        yield from self.of.grouped(contributions, msgspec.json.encode(facts).decode())
        keys = self.of.keyed(contributions["key"].combine_chunks())
        distinct = keys.group_by(keys.column_names, use_threads=False).aggregate([])
        yield from packing.packed_rows(0, distinct, None, "aside")


@dataclass(frozen=True)
class RowsTask:
    """Task that converts rows of a table to packed contributions.

    :param remembered: the rows are remembered deletes.
    :param since: leave out rows with a lower order key.
    """

    of: Contributing
    remembered: bool = False
    since: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for rows in slices(_tables(batches)):
            order = pc.fill_null(_whole(rows[ORDER_COLUMN]), "")
            if self.since:
                stays = pc.greater_equal(order, self.since)
                rows, order = rows.filter(stays), order.filter(stays)
            texts = pa.nulls(rows.num_rows, pa.string())
            op = pa.repeat(REMEMBERED if self.remembered else STORED, rows.num_rows)
            at = {name: _whole(rows[name]) for name in rows.column_names}
            beside = {"op": op, "order": order, "source_time": at[TIME_COLUMN], "source_table": texts, "open": texts}
            yield from self.of.grouped(self.of.contributions(at, beside))


@dataclass(frozen=True)
class CombineTask:
    """Task that merges all packed contributions of keys to packed changed rows and deletes, with facts.

    :param left_out: columns that some event leaves out.
    :param removes: a contribution may be older than a delete of its key.
    :param forgets: do not remember deletes of keys without a row.
    :param truncates: remove the table's rows with an order key before adding the merged ones.
    """

    of: Contributing
    left_out: frozenset[str]
    removes: bool
    forgets: bool
    truncates: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        if tables := [*packing.all_of(batches)]:
            rules = self.of.rules
            removes, arrange = self.removes, self.of.arrange
            merged = combine(pa.concat_tables(tables), rules, left_out=self.left_out, removes=removes, arrange=arrange)
            changes = self._changes(merged)
            merged = merged if pc.all(changes).as_py() else merged.filter(changes)
            rows = max(1, _BYTES * merged.num_rows // max(1, merged.nbytes))
            for start in range(0, merged.num_rows, rows):
                part = self._laid_out(merged.slice(start, rows).combine_chunks())
                deletes, lost = pc.equal(part["op"], "d"), part["open"].is_valid()
                facts = Facts(keys=part.num_rows, deletes=pc.sum(deletes).as_py(), open=pc.sum(lost).as_py())
                yield from packing.packed_rows(0, part, facts.to_json())

    def _changes(self, merged: pa.Table) -> pa.Array:
        """Return the keys whose row changes, or whose delete must be remembered."""
        is_there, lives = merged["stored_order"].is_valid(), pc.not_equal(merged["op"], "d")
        no_delete = pc.equal(merged["deletes"], 0)
        changes = pc.or_(pc.greater(merged["applied"], 0), pc.invert(no_delete))
        if self.of.rules.is_first_row:
            is_same = pc.fill_null(pc.equal(merged["stored_order"], merged["order"]), fill_value=False)
            changes = pc.and_not(changes, pc.and_(pc.and_(lives, is_same), no_delete))
        return pc.and_(changes, pc.or_(lives, is_there)) if self.forgets else changes

    def _laid_out(self, merged: pa.Table) -> pa.Table:
        """Return merged rows in the engine's layout, with event counts that show whether the table has a row."""
        count, types = merged.num_rows, self.of.types
        # a TRUNCATE removes only rows with an order key
        is_there = pa.repeat(True, count) if self.truncates else merged["stored_order"].is_valid()
        inserts = pc.and_not(pc.not_equal(merged["op"], "d"), is_there)
        counts = dict.fromkeys(COUNTS, pa.repeat(pa.scalar(0, pa.int32()), count))
        # two deletes of an existing row, regardless of its new state
        counts |= {"n_c": inserts.cast(pa.int32()), "n_d": pc.if_else(is_there, 2, 0).cast(pa.int32())}
        placed, row = self.of.placed(_whole(merged["key"])), _whole(merged["row"])
        key = {name: placed[name] for name in columns(placed, "k")}
        return pa.table(
            {
                "op": merged["op"],
                **key,
                **{f"c{i}": pc.struct_field(row, f.name).cast(f.type) for i, f in enumerate(types)},
                "open": merged["open"],
                "moved": pa.repeat(False, count),
                **{f"o{i}": pa.nulls(count, values.type) for i, values in enumerate(key.values())},
                "order": merged["order"],
                "time_us": merged["source_time"].cast(pa.int64()),
                "partition": pa.repeat("", count),
                **counts,
                **{name: placed[name] for name in columns(placed, "p")},
            }
        )


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
