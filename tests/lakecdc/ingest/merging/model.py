"""A plain model of merged rows: all events of a key in log order, whatever their order of arrival."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakecdc.contract.merging import Merge

TABLES = ("shop.a", "shop.b")


@dataclass(frozen=True)
class Event:
    """An event; ``row`` is None for a delete, and ``open`` lists the omitted columns."""

    key: int
    order: str
    row: dict[str, Any] | None
    open: tuple[str, ...] = ()
    source_table: str = TABLES[0]

    @property
    def op(self) -> str:
        return "d" if self.row is None else "u"


def merged_rows(events: Iterable[Event], merge: Merge, columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return the row of each key that has one after all events; repeated events count once."""
    by_key: dict[int, list[Event]] = {}
    for event in sorted({(e.key, e.order): e for e in events}.values(), key=lambda e: e.order):
        by_key.setdefault(event.key, []).append(event)
    rows = {key: _merged(of_key, merge, columns) for key, of_key in by_key.items()}
    return {key: row for key, row in rows.items() if row is not None}


def _merged(events: list[Event], merge: Merge, columns: Sequence[str]) -> dict[str, Any] | None:
    if merge.on_delete != "group":
        if merge.on_delete == "remove":
            last = max((i for i, event in enumerate(events) if event.row is None), default=-1)
            events = events[last + 1 :]
        events = [event for event in events if event.row is not None]
        if not events:
            return None
    grouped: dict[str, Any] = {}
    live = []
    for group in merge.groups:
        own = [e for e in events if not group.source_table or e.source_table == group.source_table]
        values, is_live = _group(own, group.members, group.sequence)
        grouped |= values
        live.append(is_live)
    if merge.on_delete == "group" and False in live and True not in live:
        return None
    of_groups = {g.source_table for g in merge.groups if g.source_table}
    rest = [e for e in events if e.source_table not in of_groups and e.row is not None]
    others = [name for name in columns if name not in grouped]
    return grouped | {name: _column(rest, name, merge.rule_of(name)) for name in others}


def _group(events: list[Event], members: Sequence[str], sequence: str | None) -> tuple[dict[str, Any], bool | None]:
    """Return the values of a group and whether it exists: None if no event decided that."""
    values, at, live = dict.fromkeys(members), None, None
    for event in events:
        if sequence and event.row is not None:
            given = event.row[sequence]
            if given is None or (at is not None and given < at):
                continue
            at = given
        live = event.row is not None
        row = event.row or dict.fromkeys(members)
        values = {name: values[name] if name in event.open else row[name] for name in members}
    return values, live


def _column(events: list[Event], name: str, rule: str) -> Any:
    values = [e.row[name] for e in events if e.row is not None and name not in e.open]
    known = [value for value in values if value is not None]
    chosen = known if rule.endswith("_non_null") else values
    if rule.startswith("last"):
        return chosen[-1] if chosen else None
    if rule.startswith("first"):
        return chosen[0] if chosen else None
    if not known:
        return None
    folds: dict[str, Callable[[list[Any]], Any]] = {"min": min, "max": max, "bool_or": any, "bool_and": all}
    return folds[rule](known)


def history(rng: random.Random, keys: int, length: int, tables: Sequence[str], *, leaves_out: bool) -> list[Event]:
    """Return random events of ``keys`` keys in order; whole rows come first, so omitted values are known."""
    events, seen = list[Event](), set[tuple[int, str]]()
    for number in range(length):
        key, table, order = rng.randrange(keys), rng.choice(tables), f"{number:08d}"
        if (key, table) in seen and rng.random() < 0.15:
            seen.discard((key, table))
            events.append(Event(key, order, None, source_table=table))
            continue
        row = {
            "a": rng.choice([None, rng.randrange(50)]),
            "b": rng.choice([None, f"b{rng.randrange(50)}"]),
            "version": rng.choice([None, *range(9)]),
            "flag": rng.choice([None, True, False]),
        }
        left_out = ("b",) if (key, table) in seen and leaves_out and rng.random() < 0.2 else ()
        seen.add((key, table))
        events.append(Event(key, order, {**row, "b": "?"} if left_out else row, left_out, table))
    return events


def arrivals(rng: random.Random, events: list[Event], cuts: int, *, late: bool) -> list[list[Event]]:
    """Cut events into batches and repeat some.

    :param late: in any order, except that deletes and events with omitted values come at their place.
    """
    placed = [(float(i), event) for i, event in enumerate(events)]
    if late:
        fixed = {event.key for event in events if event.row is None or event.open}
        placed = [(at if e.key in fixed else rng.uniform(0, len(events)), e) for at, e in placed]
    placed += [(rng.uniform(at, len(events)), replace(event)) for at, event in rng.sample(placed, len(placed) // 4)]
    placed.sort(key=lambda each: each[0])
    edges = sorted(rng.randrange(len(placed)) for _ in range(cuts - 1))
    return [[event for _, event in placed[low:high]] for low, high in zip([0, *edges], [*edges, None], strict=True)]
