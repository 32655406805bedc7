"""The same keys count as new to the table, however the events of a log are divided and folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given
from hypothesis import strategies as st

from lakecdc.ingest.engine import fold
from lakecdc.ingest.engine.layout import COUNTS, ORDER_PARTS, events_schema

SCHEMA = events_schema({"id": pa.int64(), "v": pa.int64()}, ["id"])
Event = tuple[str, int, bool]


def table_of(events: Sequence[Event]) -> pa.Table:
    """Return events of a log in order: op, key, and whether an update omits the value."""
    rows: list[dict[str, Any]] = [
        {
            **dict.fromkeys(ORDER_PARTS, 0),
            **{name: int(name == f"n_{op}") for name in COUNTS},
            **{"op": op, "k0": key, "c0": key, "c1": place, "open": ["v"] if left_out else None, "pos": place},
            **{"moved": False, "partition": "log"},
        }
        for place, (op, key, left_out) in enumerate(events)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@st.composite
def histories(draw: st.DrawFn) -> tuple[set[int], list[Event]]:
    """Draw initial keys and events; an update of a key is a delete and an update of the new one."""
    there = draw(st.sets(st.integers(0, 4)))
    before, events = set(there), list[Event]()
    for _ in range(draw(st.integers(0, 25))):
        key, other = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        if key not in there:
            events.append(("c", key, False))
            there.add(key)
            continue
        match draw(st.sampled_from("ddum")):
            case "d":
                events.append(("d", key, False))
                there.remove(key)
            case "m" if other not in there:
                events += [("d", key, False), ("u", other, False)]
                there = there - {key} | {other}
            case _:
                events.append(("u", key, draw(st.booleans())))
    return before, events


def reduced(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """Return the rows that one task hands on."""
    return fold.take_rows(table, fold.needed_places(connection, table))


def new_keys(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> set[int]:
    rows, _ = fold.folded(connection, table, ["id", "v"])
    return set(rows.filter(pc.invert(fold.may_have_been(rows)))["k0"].to_pylist())


@given(history=histories(), deal=st.lists(st.integers(0, 2), min_size=60, max_size=60))
@example(history=({1}, [("d", 1, False), ("c", 1, False)]), deal=[0, 1] * 30)
@example(history=(set(), [("c", 1, False), ("d", 1, False), ("c", 1, False), ("u", 1, True)]), deal=[0, 1, 2] * 20)
@example(history=({1}, [("d", 1, False), ("u", 2, False), ("d", 2, False), ("c", 2, False)]), deal=[0] * 60)
def test_new_keys_do_not_depend_on_the_division_among_tasks(
    history: tuple[set[int], list[Event]], deal: list[int]
) -> None:
    before, events = history
    first: dict[int, str] = {}
    moved_to = {key for (op, _, _), (then, key, _) in zip(events, events[1:], strict=False) if (op, then) == ("d", "u")}
    for op, key, _ in events:
        first.setdefault(key, op)
    inserted = {key for key, op in first.items() if op == "c"}
    assert not inserted & before
    table = table_of(events)
    with duckdb.connect() as connection:
        inserted_keys = new_keys(connection, table)
        parts = [table.filter(pa.array([deal[i] == n for i in range(len(events))], pa.bool_())) for n in range(3)]
        a, b, c = (reduced(connection, part) for part in parts)
        assert new_keys(connection, pa.concat_tables([a, b, c])) == inserted_keys
        assert (
            new_keys(connection, pa.concat_tables([reduced(connection, pa.concat_tables([a, b])), c])) == inserted_keys
        )
    # a key created by an update may count as an earlier one, never the other way round
    assert inserted - moved_to <= inserted_keys <= inserted
