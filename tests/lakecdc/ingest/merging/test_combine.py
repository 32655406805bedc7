"""Merged rows equal those of a plain model, however events are cut, delayed and repeated."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from lakecdc.contract.merging import Merge, MergeGroup
from lakecdc.ingest.change import Column
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.fold import Grouping
from lakecdc.ingest.merging import combine as combining
from lakecdc.ingest.merging.combine import REMEMBERED, SEPARATOR, STORED, Rules, combine
from lakecdc.ingest.merging.tasks import CombineTask, Contributing
from lakecdc.model.order import order_key
from tests.lakecdc.ingest.merging.model import TABLES, Event, arrivals, history, merged_rows

COLUMNS = (
    *(Column("id", "bigint", True), Column("a", "int"), Column("b", "string"), Column("version", "int")),
    Column("flag", "boolean"),
)
NAMES = tuple(c.name for c in COLUMNS if c.name != "id")
_KINDS = {"id": pa.int64(), "a": pa.int32(), "b": pa.string(), "version": pa.int32(), "flag": pa.bool_()}
SETTINGS = {
    "last": Merge(),
    "last_non_null": Merge(default="last_non_null"),
    "first_row": Merge(engine="first_row"),
    "each": Merge(columns={"a": "max", "b": "first_non_null", "version": "min", "flag": "bool_or"}),
    "each_else": Merge(columns={"a": "first", "b": "last_non_null", "flag": "bool_and"}, deletes="ignore"),
    "sequence": Merge(groups=(MergeGroup(("a", "b"), "version"),)),
    "source_tables": Merge(
        groups=(MergeGroup(("a",), source_table=TABLES[0]), MergeGroup(("b",), source_table=TABLES[1]))
    ),
}


def contributions(rows: list[dict[str, Any]], rules: Rules) -> pa.Table:
    """Return contributions as a task receives them from Spark."""
    row = pa.struct([*_KINDS.items(), *[(name, pa.string()) for name in rules.order_columns]])
    texts = [(name, pa.string()) for name in ("op", "order", "source_table", "open")]
    key = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    more = [("key", key), ("row", row), ("source_time", pa.timestamp("us", "UTC"))]
    return pa.Table.from_pylist(rows, pa.schema([*texts, *more]))


def of_event(event: Event) -> dict[str, Any]:
    row = {"id": event.key, **event.row} if event.row else None
    key, opened = {"id": event.key}, SEPARATOR.join(event.open) or None
    table, order = event.source_table, event.order
    return {"key": key, "op": event.op, "order": order, "source_table": table, "open": opened, "row": row}


def of_row(merged: dict[str, Any]) -> dict[str, Any]:
    """Return the contribution of a merged row, as stored in the table or its remembered deletes."""
    op = STORED if merged["op"] == "u" else REMEMBERED
    row = merged["row"] if op == STORED else {name: merged["row"][name] for name in merged["row"] if name not in NAMES}
    return {"key": merged["key"], "op": op, "order": merged["order"], "row": row}


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_random_histories_are_merged_as_by_the_model(name: str, late: bool) -> None:
    merge, rng = SETTINGS[name], random.Random(f"{name}{late}")
    tables = TABLES if merge.by_source_table else TABLES[:1]
    # an earlier event has the omitted value; a sequence may order that event behind
    events = history(rng, 60, 400, tables, leaves_out=not any(group.sequence for group in merge.groups))
    rules, state = Rules(merge, COLUMNS, ("id",)), list[dict[str, Any]]()
    for batch in arrivals(rng, events, 3, late=late):
        arrived = [of_event(event) for event in batch if event.op != "d" or merge.on_delete != "ignore"]
        state = combine(
            contributions(arrived + [of_row(row) for row in state], rules), rules, left_out=["b"]
        ).to_pylist()
    rows = {row["key"]["id"]: {n: row["row"][n] for n in NAMES} for row in state if row["op"] == "u"}
    assert rows == merged_rows(events, merge, NAMES)


def test_texts_larger_than_one_array_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "_MANY_BYTES", 100)
    rules, texts = Rules(SETTINGS["last"], COLUMNS, ("id",)), ["x" * n for n in range(90)]
    events = [Event(n % 3, f"{n:04d}", {"a": n, "b": text, "version": n, "flag": None}) for n, text in enumerate(texts)]
    arrived = contributions([of_event(event) for event in events], rules)
    of = Contributing(rules, Grouping(1), pa.schema(list(arrived.schema.field("row").type)))
    packed = [batch.select(["packed"]) for batch in packing.packed_rows(0, arrived, None)]
    task = CombineTask(of, frozenset(), removes=True, forgets=True, truncates=False)
    merged = [cell for batch in task(packed) for cell in packing.unpacked(batch.column("packed"))]
    assert {table.schema.field("c2").type for table in merged} == {pa.string()}
    assert sorted(text for table in merged for text in table["c2"].to_pylist()) == texts[-3:]


def test_a_removed_row_has_the_time_of_its_latest_delete() -> None:
    rules = Rules(SETTINGS["source_tables"], COLUMNS, ("id",))
    # the orders of two servers: the later delete has the lower one
    deletes = [(TABLES[0], order_key(1, 900, 1), 1), (TABLES[1], order_key(1, 20, 1), 5)]
    rows = [
        {"key": {"id": 1}, "op": "d", "order": order, "source_table": table, "source_time": datetime(2026, 1, day)}
        for table, order, day in deletes
    ]
    (merged,) = combine(contributions(rows, rules), rules).to_pylist()
    assert (merged["op"], merged["order"], merged["source_time"].day) == ("d", deletes[0][1], 5)
