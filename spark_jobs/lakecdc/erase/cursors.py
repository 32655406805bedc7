"""Key values in source positions: cursors that are the table's key, and order keys derived from it.

A position that contains an erased value moves to a neighbouring value: a cursor moves down, so that a row is read twice
rather than never; an order key moves up, which costs at most an unnecessary lookup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.table import IcebergTable, source_positions
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position, SideOf, decode, idle_positions, read_side_of
from lakecdc.model.order import WIDTH, order_key

_ORDER = re.compile(f"[0-9a-f]{{{WIDTH}}}")
# order keys are unsigned: the sign bit of a signed number is flipped
_SIGN, _MASK = 1 << 63, (1 << 64) - 1


def refuse_unfinished_load(table: IcebergTable) -> None:
    """Refuse a table whose first full load is still running, because its position contains a key value."""
    if any(_load_bound(position) is not None for position in source_positions(table)):
        raise InputError(
            "Its full load has not finished, and its position contains the last key value that was loaded.",
            table=table.name,
            hint="Run ingest until the load is complete, then erase. Nothing was erased.",
        )


def cursor_may_be_key(table: IcebergTable, key: Sequence[str]) -> bool:
    """Check whether the source's cursor column may be a key column."""
    cursors = [position.identity for position in source_positions(table) if "through" in position.offsets]
    # a cursor that is not a column of the table may be any column, renamed
    return any(cursor in key or cursor not in table.column_names for cursor in cursors)


def position_without(position: Position, values: Set[int]) -> Position:
    """Return the position, with those of other feeds, without ``values``, the integers of keys."""
    offsets = {name: _orders_without(value, values) for name, value in position.offsets.items()}
    through = offsets.get("through")
    if isinstance(through, int) and values & {through, *(offsets.get("last") or ())}:
        while through in values:
            through -= 1
        offsets |= {"through": through, "last": [through, through]}
    high, truncate = (each and order_without(each, values) for each in (position.high_order, position.truncate_order))
    others = {feed: each | {"position": _without(each["position"], values)} for feed, each in position.others.items()}
    return replace(position, offsets=offsets, high_order=high, truncate_order=truncate, others=others)


def _without(document: Mapping[str, Any], values: Set[int]) -> Any:
    """Return a position's JSON without ``values``."""
    return json.loads(position_without(decode(json.dumps(document)), values).encode())


def order_without(order: str, values: Set[int]) -> str:
    """Return the order key, or the next higher one that contains no key value."""
    if not _ORDER.fullmatch(order):
        return order
    epoch, position, ordinal = int(order[:4], 16), int(order[4:20], 16), int(order[20:36], 16)
    key_values = {each & _MASK for each in values} | {(each ^ _SIGN) & _MASK for each in values}
    if position not in key_values and ordinal not in key_values:
        return order
    if position not in key_values:
        return order_key(epoch, position, _above(ordinal, key_values))
    return order_key(epoch, _above(position, key_values))


def cursor_entries(entries: Mapping[str, str], values: Set[int]) -> list[str]:
    """Return the names of summary entries or table properties with a key value in their source position."""
    text, side = entries.get(names.POSITIONS), read_side_of(entries)
    positions = ({names.POSITIONS: decode(text)} if text else {}) | idle_positions(entries)
    holding = [name for name, position in positions.items() if _holds(position, values)]
    return [*holding, *([names.SIDE_OF] if side is not None and _mark_without(side, values) != side else [])]


def _holds(position: Position, values: Set[int]) -> bool:
    of_others = (decode(json.dumps(each["position"])) for each in position.others.values())
    every = (position, *of_others)
    return any(_load_bound(each) is not None or position_without(each, values) != each for each in every)


def side_of_without(entries: Mapping[str, Any], values: Set[int]) -> dict[str, str]:
    """Return the summary entry that links a history table to its table's state, without key values."""
    side = read_side_of(entries)
    return _mark_without(side, values).encode() if side else {}


def _mark_without(side: SideOf, values: Set[int]) -> SideOf:
    return replace(side, mark=side.mark and order_without(side.mark, values))


def _load_bound(position: Position) -> Any:
    return (position.offsets.get("load") or {}).get("bound")


def _orders_without(value: Any, values: Set[int]) -> Any:
    if isinstance(value, Mapping):
        return {name: _orders_without(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_orders_without(each, values) for each in value]
    return order_without(value, values) if isinstance(value, str) else value


def _above(number: int, values: Set[int]) -> int:
    while number in values:
        number += 1
    return number
