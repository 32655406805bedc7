"""Combine events and stored rows of the same keys into merged rows.

A *contribution* to a key is an event, the table's row, or a remembered delete. It has an order for each slot (see
``model.merge_slots``) for which it has values. Numbers stand for orders: for each column the place of the winning
contribution is computed, and the values are fetched by place, for any type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.contract.merging import Merge
from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.fold import left_out_in, lists_of
from lakecdc.ingest.engine.layout import Numbers
from lakecdc.model.merge_slots import DELETED, REMOVED_COLUMN, REST_COLUMN, Slot, order_columns, slots_of

#: kinds of contributions besides the ops of events
STORED, REMEMBERED = "stored", "remembered"
#: separates the names of left-out columns
SEPARATOR = "\0"
# most bytes of texts in one array
_MANY_BYTES = 1 << 30


@dataclass(frozen=True)
class Rules:
    """Rules, columns and key of a merged table.

    :param columns: columns of the table, without lakecdc's own.
    """

    merge: Merge
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return slots_of(self.merge, [c.name for c in self.columns], self.key)

    @cached_property
    def slot_of(self) -> dict[str, Slot]:
        """The slot of each column outside the key."""
        return {name: slot for slot in self.slots for name in slot.columns}

    @cached_property
    def order_columns(self) -> list[str]:
        return order_columns(self.merge, [c.name for c in self.columns], self.key)

    @property
    def is_first_row(self) -> bool:
        return self.merge.engine == "first_row"


def combine(
    contributions: pa.Table,
    rules: Rules,
    *,
    left_out: Collection[str] = (),
    removes: bool = True,
    arrange: Callable[[pa.Array], pa.Array] | None = None,
) -> pa.Table:
    """Merge the contributions of each key.

    :param contributions: ``key, op, order, source_time, source_table``, ``open`` with the names of left-out columns,
        and ``row`` with the table's columns and its order columns.
    :param left_out: columns that some event leaves out.
    :param removes: a contribution may be older than a delete of its key.
    :param arrange: returns the places of keys in the desired order of their rows; default: any order.
    :return: ``key, op, row, open, order, source_time`` and counts: ``op`` is ``u`` or ``d``; ``open`` lists columns
        that events left out and no contribution has; ``stored_order`` is the order key of the table's row, null without
        one; ``applied`` counts events without a later delete, and ``deletes`` the deletes among the events.
    """
    return _Combination(contributions, rules, frozenset(left_out), removes, arrange).merged()


class _Combination:
    """One merge of contributions; arrays have one number per contribution, or one per key."""

    def __init__(
        self,
        contributions: pa.Table,
        rules: Rules,
        left_out: frozenset[str],
        removes: bool,
        arrange: Callable[[pa.Array], pa.Array] | None,
    ) -> None:
        self._rules, self._left_out = rules, left_out
        arrays = {name: _array(contributions[name]) for name in contributions.column_names if name != "row"}
        row = contributions["row"]
        self._order, self._time = arrays["order"], arrays["source_time"]
        self._open = pc.split_pattern(arrays["open"], SEPARATOR)
        self._source_table, self._key, self._row_type = arrays["source_table"], arrays["key"], row.type
        named = zip(_names(self._row_type), row.flatten(), strict=True)
        self._values = {name: _array(_roomy(v) if name in rules.slot_of else v) for name, v in named}
        op = arrays["op"]
        self._is_delete = _mask(pc.is_in(op, pa.array(["d", REMEMBERED])))
        self._is_stored, self._is_remembered = _mask(pc.equal(op, STORED)), _mask(pc.equal(op, REMEMBERED))
        self._is_event = ~(self._is_stored | self._is_remembered)
        self._group, self._groups = _grouped(self._key.flatten())
        if arrange is not None:
            ranks = np.empty(self._groups, np.int64)
            ranks[arrange(_at_places(self._key, self._places())).to_numpy()] = np.arange(self._groups)
            self._group = ranks[self._group]
        self._rank_orders()
        self._judge_removals(removes and rules.merge.on_delete == "remove")

    def _rank_orders(self) -> None:
        """Rank all texts that are compared with order keys; a higher number is a later order."""
        stored = {name: self._values[name] for name in self._rules.order_columns}
        emptied = pc.if_else(self._is_delete & self._is_event, _suffixed(self._order), None)
        texts = [self._order, *([emptied] if self._empties else []), *stored.values()]
        order, *others = _ranks(texts)
        self._order_rank = order
        self._emptied_rank = others.pop(0) if self._empties else order
        self._kept_rank = dict(zip(stored, others, strict=True))
        # orders, and orders of deletes recorded in rows
        self._base = max([0, *(int(one.max(initial=0)) for one in (order, *others))]) + 2

    @property
    def _empties(self) -> bool:
        return self._rules.merge.on_delete == "group"

    def _judge_removals(self, removes: bool) -> None:
        """Find the newest delete of each key, and ignore contributions that are not newer."""
        removed = self._kept_rank.get(REMOVED_COLUMN, np.full(len(self._group), -1))
        deleted = np.where(self._is_delete, self._order_rank, -1) if removes else np.full(len(self._group), -1)
        every = np.ones(len(self._group), np.bool_)
        self._removed_by, self._deleted_by = self._last(removed, every), self._last(deleted, every)
        by_removed, by_deleted = (
            _at(rank, place) for rank, place in ((removed, self._removed_by), (deleted, self._deleted_by))
        )
        self._removal_is_kept = by_removed > by_deleted
        newest = np.maximum(by_removed, by_deleted)
        self._counts = every if not removes else self._is_delete | (self._order_rank > newest[self._group])

    def merged(self) -> pa.Table:
        """Return the merged rows."""
        counts, is_row = self._counts, ~self._is_delete
        find = self._first if self._rules.is_first_row else self._last
        by_row, by_delete = find(self._order_rank, counts & is_row), self._last(self._order_rank, counts & ~is_row)
        orders = {slot: self._slot_winners(slot) for slot in self._rules.slots}
        lives = self._lives(by_row, orders)
        decides = np.where(lives, by_row, np.where(by_delete >= 0, by_delete, by_row))
        stored = self._last(self._order_rank, self._is_stored)
        row = {c.name: self._merged_values(c.name, orders) for c in self._rules.columns}
        row |= {name: self._kept_order(name, orders, by_row) for name in self._rules.order_columns}
        fields = [self._row_type.field(name).with_type(values.type) for name, values in row.items()]
        return pa.table(
            {
                "key": _at_places(self._key, self._places()),
                "op": pc.if_else(lives, "u", "d"),
                "row": pa.StructArray.from_arrays([*row.values()], fields=fields),
                "open": self._unknown(lives & (stored < 0), orders),
                "order": _at_places(self._order, decides),
                "source_time": _at_places(self._time, np.where(lives, by_row, self._latest_delete(by_delete))),
                "stored_order": _at_places(self._order, stored),
                "applied": self._number(counts & is_row & self._is_event),
                "deletes": self._number(counts & ~is_row & self._is_event),
            }
        )

    def _latest_delete(self, by_delete: Numbers) -> Numbers:
        """Return the delete that came last in time; of several source tables it need not have the highest order."""
        if not self._empties:
            return by_delete
        (time,) = _ranks([self._time])
        latest = self._last(time, self._counts & self._is_delete)
        return np.where(latest >= 0, latest, by_delete)

    def _places(self) -> Numbers:
        """Return a contribution of each key."""
        places = np.empty(self._groups, np.int64)
        places[self._group] = np.arange(len(self._group))
        return places

    def _slot_orders(self, slot: Slot) -> Numbers:
        """Return the orders of contributions in a slot; below zero without values for it."""
        by_sequence = slot.sequence is not None
        if slot.sequence is not None:
            values = self._values.get(slot.sequence)
            (at,) = _ranks([values]) if values is not None else (np.full(len(self._group), -1),)
            at = np.where(self._is_event & ~self._given(slot.sequence), -1, at)
            stored = self._kept_rank[str(slot.order_column)]
            # for events of one sequence the order keys decide
            tie = np.where(self._is_event, self._order_rank, np.maximum(stored, 0))
        else:
            at = np.where(self._is_event, self._order_rank, self._kept_orders(slot))
            if self._empties and slot.source_table:
                at = np.where(self._is_event & self._is_delete, self._emptied_rank, at)
            # an event wins over a row of the table with the same order
            tie = np.where(self._is_event == slot.takes_last, 1, 0)
        at = np.where(self._is_event & ~self._feeds(slot), -1, at)
        return np.where(at < 0, -1, at * (self._base if by_sequence else 2) + tie)

    def _kept_orders(self, slot: Slot) -> Numbers:
        """Return the orders of the table's rows in a slot without a sequence."""
        stored = self._kept_rank[slot.order_column] if slot.order_column else np.full(len(self._group), -1)
        if slot.may_be_null or not slot.order_column:
            # a remembered delete has no values here
            return np.where(self._is_remembered, -1, np.where(stored < 0, self._order_rank, stored))
        # values without an order are older than all events; they are from other writers or a default
        has_values = np.zeros(len(self._group), np.bool_)
        for name in slot.columns:
            has_values |= _mask(self._values[name].is_valid())
        return np.where(has_values & (stored < 0), 0, stored)

    def _feeds(self, slot: Slot) -> Any:
        """Return which events feed a slot."""
        merge, is_row = self._rules.merge, ~self._is_delete
        if not merge.by_source_table or (slot.sequence and not slot.source_table):
            return is_row
        tables = [slot.source_table] if slot.source_table else [g.source_table for g in merge.groups if g.source_table]
        of_one = np.zeros(len(self._group), np.bool_)
        for table in tables:
            of_one |= self._is_of(str(table))
        if not slot.source_table:
            return is_row & ~of_one
        return of_one if self._empties and not slot.sequence else of_one & is_row

    def _is_of(self, table: str) -> Any:
        """Return which events are of a source table, given by the end of its name."""
        named = pc.binary_join_element_wise("", pc.fill_null(self._source_table, ""), ".")
        return _mask(pc.ends_with(named, f".{table}"))

    def _given(self, name: str) -> Any:
        """Return which contributions have a column."""
        leave_out = self._leave_out.get(name) if name in self._left_out else None
        return np.ones(len(self._group), np.bool_) if leave_out is None else ~_mask(leave_out)

    @cached_property
    def _leave_out(self) -> dict[str, pa.Array]:
        """Return by column which contributions leave it out."""
        return left_out_in(self._open)

    def _slot_winners(self, slot: Slot) -> tuple[Numbers, Numbers]:
        """Return the orders in a slot, and the winning contribution of each key."""
        orders = self._slot_orders(slot)
        # for a single column, only contributions with a value
        takes = self._takes(slot.columns[0], slot, orders) if slot.may_be_null else orders >= 0
        find = self._last if slot.takes_last or not slot.is_ordered else self._first
        return orders, find(orders, takes & self._counts)

    def _takes(self, name: str, slot: Slot, orders: Numbers) -> Any:
        """Return which contributions have a value that the rule of a column's slot uses."""
        takes = (orders >= 0) & self._given(name)
        return takes & _mask(self._values[name].is_valid()) if slot.skips_nulls else takes

    def _merged_values(self, name: str, orders: dict[Slot, tuple[Numbers, Numbers]]) -> pa.Array:
        """Return the value of a column for each key."""
        if name in self._rules.key:
            return self._key.flatten()[_names(self._key.type).index(name)].take(pa.array(self._places()))
        slot, values = self._rules.slot_of[name], self._values[name]
        by, winners = orders[slot]
        if slot.is_ordered:
            if self._left_out.isdisjoint(slot.columns):
                return _at_places(values, winners)
            find = self._last if slot.takes_last else self._first
            return _at_places(values, find(by, self._takes(name, slot, by) & self._counts))
        (rank,) = _ranks([values])
        find = self._last if slot.rule in ("max", "bool_or") else self._first
        return _at_places(values, find(rank, self._takes(name, slot, by) & self._counts))

    def _lives(self, by_row: Numbers, orders: dict[Slot, tuple[Numbers, Numbers]]) -> Any:
        """Return the keys with a row after the merge."""
        is_there = by_row >= 0
        if not self._empties:
            return is_there
        any_lives, any_gone = np.zeros(self._groups, np.bool_), np.zeros(self._groups, np.bool_)
        for slot, (_, winners) in orders.items():
            has = winners >= 0
            if slot.source_table:
                at = self._is_event & self._is_delete
                stored = self._values[str(slot.order_column)]
                at |= ~self._is_event & _mask(pc.fill_null(pc.ends_with(stored, DELETED), fill_value=False))
                is_deleted = has & at[np.maximum(winners, 0)]
                any_lives |= has & ~is_deleted
                any_gone |= is_deleted
            elif slot.order_column == REST_COLUMN:
                any_lives |= has
        return any_lives | (is_there & ~any_gone)

    def _kept_order(self, name: str, orders: dict[Slot, tuple[Numbers, Numbers]], by_row: Numbers) -> pa.Array:
        """Return the values of an order column after the merge."""
        stored = self._values[name]
        if name == REMOVED_COLUMN:
            newest = _at_places(self._order, self._deleted_by), _at_places(stored, self._removed_by)
            return pc.if_else(self._removal_is_kept, newest[1], newest[0])
        slot = next(slot for slot in orders if slot.order_column == name)
        winners, kept_rank = orders[slot][1], self._kept_rank[name]
        has_own, own = self._is_event, self._order
        if self._empties and slot.source_table and not slot.sequence:
            own = pc.if_else(self._is_delete, _suffixed(own), own)
        if slot.may_be_null:
            has_own = has_own | (kept_rank < 0)
            same = _at(np.where(has_own, self._order_rank, kept_rank), winners) == _at(self._order_rank, by_row)
            winners = np.where(same, -1, winners)
        is_own = (winners >= 0) & has_own[winners]
        at = pc.coalesce(
            _at_places(own, np.where(is_own, winners, -1)), _at_places(stored, np.where(is_own, -1, winners))
        )
        return pc.if_else(pa.array(winners >= 0), pc.fill_null(at, ""), None)

    def _unknown(self, is_new: Any, orders: dict[Slot, tuple[Numbers, Numbers]]) -> pa.Array:
        """Return the columns of new rows that no contribution has; null without any."""
        names = sorted(self._left_out & self._rules.slot_of.keys())
        chosen = np.zeros((self._groups, len(names)), np.bool_)
        for place, name in enumerate(names):
            given, (by, _) = self._given(name), orders[self._rules.slot_of[name]]
            leaves_out, provides = self._number(~given & self._counts), self._number(given & (by >= 0) & self._counts)
            chosen[:, place] = is_new & (leaves_out > 0) & (provides == 0)
        return lists_of(names, chosen)

    def _number(self, mask: Any) -> Numbers:
        """Count contributions of each key."""
        return np.bincount(self._group[mask], minlength=self._groups)

    def _last(self, by: Numbers, mask: Any) -> Numbers:
        """Return the contribution with the highest number for each key; below zero without one."""
        return self._winners(np.maximum, by, mask)

    def _first(self, by: Numbers, mask: Any) -> Numbers:
        """Return the contribution with the lowest number for each key; below zero without one."""
        return self._winners(np.minimum, by, mask)

    def _winners(self, choose: np.ufunc, by: Numbers, mask: Any) -> Numbers:
        """Return the contribution with the chosen number for each key; of equal ones the last, or the first."""
        places = np.flatnonzero(mask & (by >= 0))[:: 1 if choose is np.maximum else -1]
        group, numbers = self._group[places], by[places]
        chosen, winners = np.full(self._groups, -1), np.full(self._groups, -1)
        # start with any of its numbers
        chosen[group] = numbers
        choose.at(chosen, group, numbers)
        is_chosen = numbers == chosen[group]
        winners[group[is_chosen]] = places[is_chosen]
        return winners


def _grouped(key: Sequence[pa.Array]) -> tuple[Numbers, int]:
    """Return the number of each contribution's key, and the count of keys."""
    group, groups = np.zeros(len(key[0]), np.int64), 1
    for column in key:
        encoded = column.dictionary_encode(null_encoding="encode")
        together = pa.array(group * len(encoded.dictionary) + encoded.indices.to_numpy().astype(np.int64))
        numbered = together.dictionary_encode()
        group, groups = numbered.indices.to_numpy().astype(np.int64), len(numbered.dictionary)
    return group, groups


def _ranks(arrays: Sequence[pa.Array]) -> list[Numbers]:
    """Rank values among all arrays from 1, equal ones alike; null is below zero."""
    together = pa.chunked_array([*arrays])
    known = together.drop_null()
    ranks = np.full(len(together), -1)
    ranks[_mask(together.is_valid())] = pc.rank(known, tiebreaker="dense").to_numpy()
    return np.split(ranks, np.cumsum([len(one) for one in arrays])[:-1])


def _suffixed(orders: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(orders, DELETED, "")


def _at_places(values: pa.Array, places: Numbers) -> pa.Array:
    """Return values by place; null for a place below zero."""
    return values.take(pa.array(places, mask=places < 0))


def _at(numbers: Numbers, places: Numbers) -> Numbers:
    return np.where(places < 0, -1, numbers[np.maximum(places, 0)])


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _roomy(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts with a type that fits all of them in one array."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return column.cast(large[column.type]) if column.nbytes > _MANY_BYTES and column.type in large else column


def _mask(values: Any) -> Any:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return array.to_numpy(zero_copy_only=False)


def _names(struct: pa.StructType) -> list[str]:
    return [field.name for field in struct]
