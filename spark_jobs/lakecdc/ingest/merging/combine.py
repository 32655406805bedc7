"""Combine events and stored rows of the same keys into the rows that the table should have.

A *contribution* to a key is one row of a frame: an event, the row of the table, or a delete that the table remembers.
It has an order for each slot (see ``model.merge_slots``), null where it has no values for the slot. One aggregation per
key gives every column its value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.contract.merging import Merge
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.ingest.change import Column as TableColumn
from lakecdc.model.merge_slots import DELETED, REMOVED_COLUMN, REST_COLUMN, Slot, order_columns, slots_of
from lakecdc.sql import holds, parsed_type, quoted_column

# kinds of contributions beside the ops of events
_STORED, _REMEMBERED = "stored", "remembered"
_IS_DELETE = f"op IN ('d', '{_REMEMBERED}')"


@dataclass(frozen=True)
class Rules:
    """Rules, columns and key of a merged table.

    :param columns: of the table, without lakecdc's own.
    """

    merge: Merge
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return slots_of(self.merge, [c.name for c in self.columns], self.key)

    @cached_property
    def slot_of(self) -> dict[str, tuple[int, Slot]]:
        """Each column outside the key with its slot and the slot's number."""
        return {name: (i, slot) for i, slot in enumerate(self.slots) for name in slot.columns}

    @cached_property
    def order_columns(self) -> list[str]:
        return order_columns(self.merge, [c.name for c in self.columns], self.key)

    @property
    def is_first_row(self) -> bool:
        return self.merge.engine == "first_row"


def contributions_of_events(events: DataFrame, rules: Rules) -> DataFrame:
    """Return the contributions of a batch's events.

    :param events: a change frame, with ``source_table`` where groups are of source tables.
    """
    if rules.merge.on_delete == "ignore":
        events = events.where("op != 'd'")
    there = {*events.select("row.*").columns}
    values = [F.col("row")[c.name] if c.name in there else F.lit(None) for c in rules.columns]
    row = F.struct(*[value.cast(c.type).alias(c.name) for value, c in zip(values, rules.columns, strict=True)])
    orders = [_order_in_event(slot, rules).alias(f"o{i}") for i, slot in enumerate(rules.slots)]
    removed = F.lit(None).cast("string").alias("removed")
    return events.withColumn("row", row).select("key", "op", "order", "source_time", "row", "open", removed, *orders)


def contributions_of_rows(rows: DataFrame, rules: Rules, *, remembered: bool = False) -> DataFrame:
    """Return the contributions of rows of the table.

    :param rows: columns by their names; missing ones are null.
    :param remembered: they are deletes that the table remembers instead.
    """
    there = {*rows.columns}

    def value(name: str, kind: str) -> Column:
        return (F.col(quoted_column(name)) if name in there else F.lit(None)).cast(kind)

    row_order = F.coalesce(value(ORDER_COLUMN, "string"), F.lit(""))
    kinds = {c.name: c.type for c in rules.columns}

    def order(slot: Slot) -> Column:
        kept = value(slot.order_column, "string") if slot.order_column else row_order
        if slot.sequence:
            return _ordering(value(slot.sequence, kinds.get(slot.sequence, "string")), F.coalesce(kept, F.lit("")))
        if slot.order_column and not slot.may_be_null:
            # values without an order are older than all events; others wrote them, or a default filled them
            has_values = reduce(or_, [value(name, kinds[name]).isNotNull() for name in slot.columns], F.lit(False))
            return _ordering(F.when(kept.isNotNull() | has_values, F.coalesce(kept, F.lit(""))), F.lit(""))
        if slot.may_be_null or not slot.order_column:
            # a remembered delete has no values of these
            kept = F.when(F.lit(not remembered), F.coalesce(kept, row_order))
        return _ordering(kept, F.lit("" if slot.takes_last else "1"))

    return rows.select(
        F.struct(*[value(k, kinds[k]).alias(k) for k in rules.key]).alias("key"),
        F.lit(_REMEMBERED if remembered else _STORED).alias("op"),
        row_order.alias("order"),
        value(TIME_COLUMN, "timestamp").alias("source_time"),
        F.struct(*[value(c.name, c.type).alias(c.name) for c in rules.columns]).alias("row"),
        F.lit(None).cast("array<string>").alias("open"),
        value(REMOVED_COLUMN, "string").alias("removed"),
        *[order(slot).alias(f"o{i}") for i, slot in enumerate(rules.slots)],
    )


def combine(
    contributions: DataFrame, rules: Rules, *, left_out: Collection[str] = (), removes: bool = True
) -> DataFrame:
    """Merge the contributions of each key.

    :param left_out: columns that some event leaves out.
    :param removes: a contribution may be older than a delete of its key.
    :return: ``key, op, row, open, order, source_time`` and counts: ``op`` is ``u`` or ``d``; ``row`` has the table's
        order columns too; ``open`` names columns that events left out and nothing else has; ``stored_order`` is the
        order key of the table's row, null without one; ``applied`` counts events that no delete came after, and
        ``deletes`` the deletes among the events.
    """
    contributions = _without_removed(contributions, rules, removes=removes)
    opened = [(j, c) for j, c in _outside_key(rules) if c.name in left_out]
    whole = _whole_slots(rules, left_out)
    apart = [(j, c) for j, c in _outside_key(rules) if rules.slot_of[c.name][0] not in whole]
    is_delete = F.expr(_IS_DELETE)
    of_rows, of_deletes = (F.when(which, F.col("order")) for which in (~is_delete, is_delete))
    newest, newest_by = (F.min, F.min_by) if rules.is_first_row else (F.max, F.max_by)
    # Spark sorts single columns faster than structs
    of_key = [F.col("key")[name].alias(f"k{i}") for i, name in enumerate(rules.key)]
    merged = contributions.groupBy(*of_key).agg(
        newest(of_rows).alias("order"),
        newest_by("source_time", of_rows).alias("source_time"),
        F.max(of_deletes).alias("deleted_at"),
        F.max_by("source_time", of_deletes).alias("deleted_time"),
        F.max("stored_order").alias("stored_order"),
        F.count_if(~is_delete & (F.col("op") != _STORED)).alias("applied"),
        F.count_if(F.col("op") == "d").alias("deletes"),
        F.max("removal").alias("removal"),
        *[_merged_order(i, slot, whole.get(i, ())).alias(f"m{i}") for i, slot in enumerate(rules.slots)],
        *[_merged_value(c.name, *rules.slot_of[c.name]).alias(f"v{j}") for j, c in apart],
        *[F.count_if(_provides(c.name, rules.slot_of[c.name][0])).alias(f"t{j}") for j, c in opened],
        *[F.count_if(~_is_given(c.name)).alias(f"u{j}") for j, c in opened],
    )
    lives = _lives(rules)
    values = {name: F.col(f"k{i}") for i, name in enumerate(rules.key)}
    values |= {c.name: F.col(f"v{j}")["v"] for j, c in apart}
    values |= {name: F.col(f"m{i}")[f"v{place}"] for i, names in whole.items() for place, name in enumerate(names)}
    orders = [_kept_order(name, rules).alias(name) for name in rules.order_columns]
    # the row of the table has all values, nulls included
    is_new = F.col("stored_order").isNull()
    unknown = [F.when(is_new & (F.col(f"u{j}") > 0) & (F.col(f"t{j}") == 0), F.lit(c.name)) for j, c in opened]
    unknown_names = F.array_compact(F.array(*unknown).cast("array<string>"))
    return merged.select(
        F.struct(*[F.col(f"k{i}").alias(name) for i, name in enumerate(rules.key)]).alias("key"),
        F.when(lives, "u").otherwise("d").alias("op"),
        F.struct(*[values[c.name].alias(c.name) for c in rules.columns], *orders).alias("row"),
        F.when(lives & (F.size(unknown_names) > 0), unknown_names).alias("open"),
        F.when(lives, F.col("order")).otherwise(F.coalesce("deleted_at", "order")).alias("order"),
        F.when(lives, F.col("source_time")).otherwise(F.col("deleted_time")).alias("source_time"),
        *("stored_order", "applied", "deletes"),
    )


def _order_in_event(slot: Slot, rules: Rules) -> Column:
    """Return the order of an event in a slot; null if the event has no values for the slot."""
    merge, order, is_delete = rules.merge, F.col("order"), F.col("op") == "d"
    is_its = ~is_delete
    if merge.by_source_table and not slot.sequence:
        tables = [slot.source_table] if slot.source_table else [g.source_table for g in merge.groups if g.source_table]
        is_of_one = reduce(or_, [_is_of(str(table)) for table in tables])
        if slot.source_table and merge.on_delete == "group":
            order = F.when(is_delete, F.concat(order, F.lit(DELETED))).otherwise(order)
            is_its = is_of_one
        else:
            is_its = is_its & (is_of_one if slot.source_table else ~is_of_one)
    elif slot.source_table:
        is_its = is_its & _is_of(slot.source_table)
    if slot.sequence:
        there = slot.sequence in {c.name for c in rules.columns}
        order = F.when(_is_given(slot.sequence), F.col("row")[slot.sequence]) if there else F.lit(None).cast("string")
    # among events of one sequence their order keys decide
    tie = F.col("order") if slot.sequence else F.lit("1" if slot.takes_last else "")
    return _ordering(F.when(is_its, order), tie)


def _is_given(name: str) -> Column:
    return ~F.coalesce(F.array_contains("open", name), F.lit(False))


def _is_of(table: str) -> Column:
    """Return the condition that an event is of a source table, which is named by the end of its name."""
    return F.endswith(F.concat(F.lit("."), F.coalesce("source_table", F.lit(""))), F.lit(f".{table}"))


def _ordering(order: Column, tie: Column) -> Column:
    """Return an order, null if it is; ``tie`` lets an event win over a row of the table that has the same one."""
    return F.when(order.isNotNull(), F.struct(order.alias("at"), tie.alias("tie")))


def _without_removed(contributions: DataFrame, rules: Rules, *, removes: bool) -> DataFrame:
    """Leave out what is not newer than a delete of its key, whose order key is ``removal``; add ``stored_order``."""
    stored = F.when(F.col("op") == _STORED, F.col("order"))
    if rules.merge.on_delete != "remove" or not removes:
        return contributions.withColumns({"stored_order": stored, "removal": F.col("removed")})
    is_delete, of_key = F.expr(_IS_DELETE), Window.partitionBy("key")
    removal = F.greatest(F.when(is_delete, F.col("order")), F.col("removed"))
    judged = contributions.withColumns(
        {"stored_order": F.max(stored).over(of_key), "removal": F.max(removal).over(of_key)}
    )
    return judged.where(is_delete | F.col("removal").isNull() | (F.col("order") > F.col("removal")))


def _outside_key(rules: Rules) -> list[tuple[int, TableColumn]]:
    return [(j, c) for j, c in enumerate(rules.columns) if c.name not in rules.key]


def _provides(name: str, number: int) -> Column:
    """Return the condition that a contribution has a value of a column, null included."""
    return F.col(f"o{number}").isNotNull() & _is_given(name)


def _takes(name: str, number: int, slot: Slot) -> Column:
    """Return the condition that a contribution has a value of a column that the rule of its slot takes."""
    provides = _provides(name, number)
    return provides & F.col("row")[name].isNotNull() if slot.skips_nulls else provides


def _merged_value(name: str, number: int, slot: Slot) -> Column:
    """Return the aggregate of a column, in a struct, as it may be null; null without one."""
    value, takes = F.col("row")[name], _takes(name, number, slot)
    if slot.is_ordered:
        by = F.max_by if slot.takes_last else F.min_by
        return by(F.struct(value.alias("v")), F.when(takes, F.col(f"o{number}")))
    fold = {"min": F.min, "max": F.max, "bool_or": F.bool_or, "bool_and": F.bool_and}[slot.rule]
    return F.when(F.count_if(takes) > 0, F.struct(fold(F.when(takes, value)).alias("v")))


def _whole_slots(rules: Rules, left_out: Collection[str]) -> dict[int, tuple[str, ...]]:
    """Return the columns of the slots whose values are all from the contribution that has their order."""
    unordered = {c.name for c in rules.columns if holds(parsed_type(c.type), "map", "variant")}
    apart = {*left_out} | unordered
    return {i: slot.columns for i, slot in enumerate(rules.slots) if slot.is_ordered and apart.isdisjoint(slot.columns)}


def _merged_order(number: int, slot: Slot, columns: Sequence[str]) -> Column:
    """Return the aggregate of a slot's order, and of columns whose values come with it."""
    order = F.col(f"o{number}")
    # of a single column, only contributions with a value
    takes = _takes(slot.columns[0], number, slot) if slot.may_be_null else order.isNotNull()
    values = [F.col("row")[name].alias(f"v{place}") for place, name in enumerate(columns)]
    order = F.when(takes, F.struct(order["at"].alias("at"), order["tie"].alias("tie"), *values))
    return (F.max if slot.takes_last or not slot.is_ordered else F.min)(order)


def _lives(rules: Rules) -> Column:
    """Return the condition that the table should have a row of the key."""
    is_there = F.col("order").isNotNull()
    if rules.merge.on_delete != "group":
        return is_there
    orders = [F.col(f"m{i}")["at"] for i, slot in enumerate(rules.slots) if slot.source_table]
    gone = [F.endswith(at, F.lit(DELETED)) for at in orders]
    lives = [F.coalesce(~each, F.lit(False)) for each in gone]
    lives += [F.col(f"m{i}").isNotNull() for i, slot in enumerate(rules.slots) if slot.order_column == REST_COLUMN]
    any_lives = reduce(or_, lives)
    any_gone = reduce(or_, [F.coalesce(each, F.lit(False)) for each in gone])
    return any_lives | (is_there & ~any_gone)


def _kept_order(name: str, rules: Rules) -> Column:
    """Return what a column of the table that keeps an order has after the merge."""
    if name == REMOVED_COLUMN:
        return F.col("removal")
    number, slot = next((i, slot) for i, slot in enumerate(rules.slots) if slot.order_column == name)
    at = F.col(f"m{number}")["tie" if slot.sequence else "at"]
    return F.when(at != F.col("order"), at) if slot.may_be_null else at
