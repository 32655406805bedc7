"""Convert the texts of a database's log events to the types of a table's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.layout import (
    CHECKS,
    COUNTS,
    ORDER_PARTS,
    change_schema,
    order_texts,
    places_back,
    struct_of,
    struct_type,
)
from lakecdc.ingest.engine.packing import change_columns
from lakecdc.ingest.formats.text_columns import Convert, misfits_by_row, null_places
from lakecdc.model.columns import arrow_type
from lakecdc.model.order import RANK_CHANGE


@dataclass(frozen=True)
class LogText:
    """Place of a value's text in its row or old key, and the name of its source type."""

    place: int
    base: str


@dataclass(frozen=True)
class LogVersion:
    """Places of the columns' texts in the events of one version of the source's table.

    :param number: ``version`` of the events.
    :param texts: texts of the target's columns, by name; missing columns are newer than the events.
    :param old: texts of the old row: the key's columns, or all columns of a table without a key.
    :param renamed: current names of columns, by former ones.
    """

    number: int
    texts: Mapping[str, LogText]
    old: Mapping[str, LogText]
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LogLayout:
    """Layout of a table's events, and the target's columns.

    :param versions: one for each state of the source's table in the round.
    :param columns: columns of the target; rows older than a column get its ``fill``.
    :param end: place in the log where the round ends.
    :param folds: the last event of each key may stand for all of them.
    :param void_below: order key of a TRUNCATE; earlier events are not folded.
    :param moves_left_out: positions and ordinals of key updates to leave out, with their deletes.
    """

    versions: tuple[LogVersion, ...]
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    convert: Convert
    end: int
    folds: bool = True
    void_below: str | None = None
    moves_left_out: frozenset[tuple[int, int]] = frozenset()

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}

    @property
    def misfit_schema(self) -> str:
        """Return the Spark SQL schema of rejected events, see :meth:`typed`."""
        texts, old_texts = (struct_type(dict.fromkeys(names, "string")) for names in (self.types, self.key))
        return (
            f"{change_schema(self.types, self.key)}, time_us bigint, misfits array<string>, texts {texts}, "
            f"old_texts {old_texts}, rejected struct<order: string>"
        )

    def typed(self, table: pa.Table, epoch: int) -> pa.Table:
        """Return the events of a table in the engine's layout, with the columns of its checks.

        An event with a value that does not fit is rejected, with its columns in ``message``.
        """
        table = table.filter(pc.less(table["commit_lsn"], self.end))
        if len(self.versions) == 1:
            return self._typed(table.combine_chunks(), self.versions[0], epoch)
        parts = []
        for version in self.versions:
            own = table.filter(pc.equal(table["version"], version.number))
            parts.append(self._typed(own.combine_chunks(), version, epoch))
        return pa.concat_tables(parts, promote_options="default")

    def _typed(self, table: pa.Table, version: LogVersion, epoch: int) -> pa.Table:
        texts = _Texts(self, version, table)
        events = {f"c{i}": texts.row[c.name] for i, c in enumerate(self.columns)}
        for i, name in enumerate(self.key):
            events |= {f"k{i}": texts.key[name], f"o{i}": texts.old_key(name)}
        count, of = table.num_rows, texts.of
        times = of["commit_micros"]
        events |= {
            "op": of["kind"],
            "open": texts.open,
            "moved": texts.moved,
            "pos": of["commit_lsn"],
            "ord": of["ordinal"],
            "rank": pa.repeat(pa.scalar(RANK_CHANGE, pa.int8()), count),
            # an order key cannot store the time of a server whose clock is wrong by decades
            "time_ms": pc.max_element_wise(pc.divide(times, 1000), 0),
            "arrival": pa.repeat(pa.scalar(0, pa.int64()), count),
            "time_us": times,
            "partition": pa.repeat("log", count),
            **{name: pc.equal(of["kind"], name[-1]).cast(pa.int32()) for name in COUNTS},
            **dict.fromkeys(CHECKS, pa.nulls(count)),
            "source_table": pa.nulls(count, pa.string()),
        }
        typed = pa.table(events | texts.rejected(events, epoch))
        return self._without_moves(typed) if self.moves_left_out else typed

    def _without_moves(self, typed: pa.Table) -> pa.Table:
        """Remove the deletes of old keys whose key update is rejected."""
        places = zip(typed["pos"].to_pylist(), typed["ord"].to_pylist(), typed["op"].to_pylist(), strict=True)
        stays = [op != "d" or (position, ordinal) not in self.moves_left_out for position, ordinal, op in places]
        return typed.filter(pa.array(stays, pa.bool_()))


class _Texts:
    """Typed values of the events of one version of a table.

    :ivar row: values of the row by column, if a delete has them.
    :ivar key: values of the event's key.
    """

    def __init__(self, layout: LogLayout, version: LogVersion, table: pa.Table) -> None:
        self._layout, self._version = layout, version
        self.of = {name: _whole(table[name]) for name in table.column_names}
        self._count = table.num_rows
        self._is_delete, self.moved = pc.equal(self.of["kind"], "d"), self.of["moved"].fill_null(False)
        self._has_deletes, self._has_moved = (pc.any(which).as_py() or False for which in (self._is_delete, self.moved))
        self._types = layout.types
        self._misfits: list[tuple[str, list[int]]] = []
        self._old: dict[str, pa.Array] = {}
        for name in layout.key:
            self._convert_old(name, pc.or_(self._is_delete, self.moved) if self._has_moved else self._is_delete)
        self.row = {c.name: self._convert_row(c) for c in layout.columns}
        self.key = {name: self._key(name) for name in layout.key}

    @property
    def open(self) -> pa.Array:
        """Return the current names of the columns that events leave out."""
        lists = self.of["open"]
        if not self._version.renamed or lists.null_count == len(lists):
            return lists
        now = self._version.renamed
        renamed = [None if names is None else [now.get(name, name) for name in names] for names in lists.to_pylist()]
        return pa.array(renamed, pa.list_(pa.string()))

    def old_key(self, name: str) -> pa.Array:
        """Return the values of a key column before the event changed it."""
        if not self._has_moved:
            return pa.nulls(self._count, self.row[name].type)
        return pc.if_else(self.moved, self._old[name], pa.scalar(None, self.row[name].type))

    def _text(self, column: str, name: str) -> tuple[pa.Array, str]:
        """Return the ``new`` or ``old`` texts of a column, and their type; nulls where the version lacks it."""
        placed = (self._version.texts if column == "new" else self._version.old).get(name)
        if placed is None or not self._count:
            return pa.nulls(self._count, pa.string()), placed.base if placed else ""
        return pc.list_element(self.of[column], placed.place), placed.base

    def _convert_old(self, name: str, where: pa.Array) -> None:
        """Type the old texts of a column, for events that have them."""
        kind = arrow_type(self._types[name])
        if not (self._has_deletes or self._has_moved):
            self._old[name] = pa.nulls(self._count, kind)
            return
        texts, base = self._text("old", name)
        texts = pc.if_else(where, texts, pa.scalar(None, pa.string()))
        self._old[name], wrong = self._layout.convert(texts, base, self._types[name])
        self._misfits.append((name, [*wrong]))

    def _convert_row(self, column: Column) -> pa.Array:
        kind = arrow_type(column.type)
        if column.name not in self._version.texts:
            values = pa.repeat(pa.scalar(column.fill, kind), self._count)
        else:
            texts, base = self._text("new", column.name)
            values, wrong = self._layout.convert(texts, base, column.type)
            self._misfits.append((column.name, [*wrong]))
        if not self._layout.key and self._has_deletes and self._version.old:
            # without a key, all old values identify the row
            self._convert_old(column.name, self._is_delete)
            values = pc.if_else(self._is_delete, self._old[column.name], values)
        return values

    def _key(self, name: str) -> pa.Array:
        values = pc.if_else(self._is_delete, self._old[name], self.row[name]) if self._has_deletes else self.row[name]
        self._misfits.append((name, null_places(values)))
        return values

    def rejected(self, typed: Mapping[str, pa.Array], epoch: int) -> dict[str, pa.Array]:
        """Return the columns ``rejected`` and ``message`` of events with values that do not fit; empty without any."""
        misfits = misfits_by_row(self._misfits)
        if not misfits:
            return {}
        order = {c.name: i for i, c in enumerate(self._layout.columns)}
        places, count = pa.array(sorted(misfits), pa.int64()), len(misfits)
        in_order = [sorted(misfits[i], key=order.__getitem__) for i in sorted(misfits)]
        at = {name: values.take(places) for name, values in typed.items()}
        is_delete = pc.equal(at["op"], "d")
        names = [c.name for c in self._layout.columns]
        of_row = [(name, self._text("new", name)[0].take(places)) for name in names]
        of_old = {name: self._text("old", name)[0].take(places) for name in self._version.old}
        nothing = pa.nulls(count, pa.string())
        texts = [(name, pc.if_else(is_delete, of_old.get(name, nothing), text)) for name, text in of_row]
        key = self._layout.key
        message = change_columns(at, names, key) | {
            "time_us": at["time_us"],
            "misfits": pa.array(in_order, pa.list_(pa.string())),
            "texts": struct_of(texts, count),
            "old_texts": struct_of([(name, of_old[name]) for name in key], count),
        }
        parts = (at[name].to_numpy() for name in ORDER_PARTS)
        orders = struct_of([("order", order_texts(epoch, *parts))], count)
        back = places_back(sorted(misfits), self._count)
        return {"rejected": orders.take(back), "message": struct_of([*message.items()], count).take(back)}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
