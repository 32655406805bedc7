"""Decide which columns of a merged row share an order, and where the table keeps it.

An event changes the columns of a slot if it is not older than the row's values there. Columns of ``last`` share the
row's order key; a group has its own order, and so has each column of ``last_non_null``, ``first`` and
``first_non_null``, because its value may be from another event than the rest of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakecdc.contract.merging import ORDER_PREFIX, Merge, Rule

#: order key of a row's newest delete; older events were not merged into it
REMOVED_COLUMN = f"{ORDER_PREFIX}removed"
#: order key of the columns outside groups, if groups are fed by single source tables
REST_COLUMN = f"{ORDER_PREFIX}rest"
#: ends the order key of a group whose row was deleted at its source
DELETED = "-"


@dataclass(frozen=True)
class Slot:
    """Columns that are merged in one order.

    :param columns: without key columns.
    :param sequence: column with the order; default: order keys.
    :param source_table: the only one whose events have these columns; default: all tables without groups.
    :param order_column: column of the table with the order key of the slot's last event; None: the row's.
    :param may_be_null: if the order column is null, the row's order key applies.
    """

    columns: tuple[str, ...]
    rule: Rule = "last"
    sequence: str | None = None
    source_table: str | None = None
    order_column: str | None = None
    may_be_null: bool = False

    @property
    def takes_last(self) -> bool:
        """Check whether the highest order wins."""
        return self.rule.startswith("last")

    @property
    def is_ordered(self) -> bool:
        """Check whether the order decides at all."""
        return self.rule.startswith(("last", "first"))

    @property
    def skips_nulls(self) -> bool:
        return self.rule.endswith("_non_null")


def slots_of(merge: Merge, columns: Iterable[str], key: Sequence[str]) -> tuple[Slot, ...]:
    """Return the slots of a table's columns; groups are limited to these columns."""
    names = [name for name in columns if name not in key]
    slots, grouped = list[Slot](), set[str]()
    for group in merge.groups:
        grouped |= {*group.members}
        members = tuple(name for name in group.members if name in names)
        slots.append(Slot(members, "last", group.sequence, group.source_table, f"{ORDER_PREFIX}{group.title}"))
    others = [name for name in names if name not in grouped]
    if merge.engine == "first_row":
        return (*slots, Slot(tuple(others), "first"))
    shared = tuple(name for name in others if merge.rule_of(name) == "last")
    slots.append(Slot(shared, order_column=REST_COLUMN if merge.by_source_table else None))
    for name in others:
        rule = merge.rule_of(name)
        if rule != "last":
            ordered = Slot((name,), rule).is_ordered
            slots.append(Slot((name,), rule, None, None, f"{ORDER_PREFIX}{name}" if ordered else None, True))
    return tuple(slots)


def keeps_removal(merge: Merge) -> bool:
    """Check whether rows need the order key of their newest delete."""
    rules = {merge.default, *merge.columns.values()}
    return merge.on_delete == "remove" and (rules != {"last"} or bool(merge.groups or merge.engine))


def order_columns(merge: Merge, columns: Iterable[str], key: Sequence[str]) -> list[str]:
    """Return the order columns of a merged table beside the order key; all are texts."""
    order_names = [slot.order_column for slot in slots_of(merge, columns, key) if slot.order_column]
    return [*order_names, *([REMOVED_COLUMN] if keeps_removal(merge) else [])]
