"""A placeholder gets the newest value of an earlier event, however the events of a log are divided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakecdc.ingest.change import Column
from lakecdc.ingest.engine import facts, log, packing, tasks
from lakecdc.ingest.engine.facts import Facts
from lakecdc.ingest.engine.fold import grouping
from lakecdc.ingest.engine.log import LogTask
from lakecdc.ingest.engine.log_layout import LogLayout, LogText, LogVersion
from lakecdc.ingest.engine.packing import UnpackTask
from lakecdc.ingest.engine.tasks import EVERY, Buffering, FoldTask
from lakecdc.ingest.sources.postgres.types import Texts
from lakecdc.model.order import order_key

COLUMNS = (("id", "int8", "bigint"), ("large", "text", "string"), ("octets", "bytea", "binary"), ("n", "int4", "int"))
NAMES = tuple(name for name, _, _ in COLUMNS)
TEXTS = {name: LogText(place, base) for place, (name, base, _) in enumerate(COLUMNS)}
LAYOUT = LogLayout(
    (LogVersion(0, TEXTS, {"id": TEXTS["id"]}),),
    tuple(Column(name, kind) for name, _, kind in COLUMNS),
    ("id",),
    Texts(),
    10_000,
)
SCHEMA = pa.schema(
    [
        *(("kind", pa.string()), ("commit_lsn", pa.int64()), ("ordinal", pa.int64()), ("commit_micros", pa.int64())),
        *((name, pa.list_(pa.string())) for name in ("new", "open", "old")),
        ("moved", pa.bool_()),
    ]
)
Event = dict[str, Any]


def event(lsn: int, kind: str, key: int, left_out: frozenset[str] = frozenset()) -> Event:
    values = {"id": str(key), "large": f"large {lsn}", "octets": f"\\x{lsn:04x}", "n": str(lsn)}
    new = [None if name in left_out else value for name, value in values.items()]
    open_columns = [name for name in NAMES if name in left_out]
    image = {"new": None, "old": [str(key), None, None, None]} if kind == "d" else {"new": new, "old": None}
    about = {"kind": kind, "commit_lsn": lsn, "ordinal": 1, "commit_micros": lsn * 1000, "moved": False}
    return {**about, **image, "open": open_columns or None}


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Draw events of a few keys, some of them already in the table."""
    there = set(draw(st.sets(st.integers(0, 3))))
    events = []
    for lsn in range(1, draw(st.integers(1, 25))):
        key = draw(st.integers(0, 3))
        if key not in there:
            events.append(event(lsn, "c", key))
            there.add(key)
        elif draw(st.integers(0, 5)) == 0:
            events.append(event(lsn, "d", key))
            there.remove(key)
        else:
            left_out = draw(st.sets(st.sampled_from(["large", "octets"])))
            events.append(event(lsn, "u", key, frozenset(left_out)))
    return events


def expected(events: list[Event]) -> dict[int, Event]:
    """Apply one event after another."""
    rows: dict[int, Event] = {}
    for one in events:
        key = int((one["new"] or one["old"])[0])
        row, still = None, []
        if one["kind"] != "d":
            before = rows.get(key, {"row": {}, "open": list(NAMES)})
            row = dict(zip(NAMES, one["new"], strict=True))
            for name in one["open"] or ():
                row[name] = (before["row"] or {}).get(name)
                still += [name] if name in (before["open"] or ()) else []
        rows[key] = {"op": one["kind"], "row": row, "open": still or None, "order": order_key_of(one)}
    return rows


def order_key_of(one: Event) -> str:
    return order_key(1, one["commit_lsn"], one["ordinal"], time=one["commit_micros"] // 1000)


def run(
    events: list[Event], dealt: list[int], *, every: bool, layout: LogLayout = LAYOUT
) -> tuple[list[Any], list[Any], Facts]:
    """Run the tasks as Spark does; return folded rows, all events, and facts of the fold."""
    count = max(dealt) + 1
    groups = grouping(["bucket(2, id)"], ["id"], ["bigint"], 1)
    task = LogTask(layout, Buffering(groups, 1, NAMES, every, count == 1, is_log=True))
    rows: list[pa.RecordBatch] = []
    for number in range(count):
        share = [pa.Table.from_pylist([e], SCHEMA) for e, n in zip(events, dealt, strict=True) if n == number]
        packed = [packing.binary(cell) for table in share for cell in packing.cells(table)]
        rows += task([pa.RecordBatch.from_arrays([cell], ["packed"]) for cell in packed])
    all_events = [row for row in rows if row["grp"][0].as_py() == EVERY]
    rows = [row for row in rows if row["grp"][0].as_py() != EVERY]
    if count > 1:
        of_group: dict[int, list[pa.RecordBatch]] = {}
        for row in rows:
            of_group.setdefault(row["grp"][0].as_py(), []).append(row)
        rows = [row for group in of_group.values() for row in FoldTask(1, NAMES)(group)]
    reported = facts.merged(facts.from_json(row["facts"][0].as_py()) for row in rows if row["facts"][0].is_valid)
    return unpacked(rows), unpacked(all_events), reported


def unpacked(rows: list[pa.RecordBatch]) -> list[Any]:
    batches = [b for row in rows for b in UnpackTask(NAMES, ("id",), "rcud")([row.select(["packed"])])]
    return [row for batch in batches for row in batch.to_pylist()]


def image(one: Event) -> dict[str, Any] | None:
    """Return the row with its expected types."""
    if one["row"] is None:
        return None
    row = one["row"]
    octets = None if row["octets"] is None else bytes.fromhex(row["octets"][2:])
    return {"id": int(row["id"]), "large": row["large"], "octets": octets, "n": int(row["n"])}


@given(events=histories(), data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_placeholders_are_filled_as_by_single_events(events: list[Event], data: st.DataObject) -> None:
    if not events:
        return
    count = data.draw(st.integers(1, 3))
    dealt = data.draw(st.lists(st.integers(0, count - 1), min_size=len(events), max_size=len(events)))
    every, rows_per_task, rows = data.draw(st.booleans()), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    with patch.object(tasks, "_MANY_ROWS", rows_per_task), patch.object(log, "_ROWS", rows):
        folded, all_events, reported = run(events, dealt, every=every)
    expected_rows = expected(events)
    assert reported.odd is None
    assert {row["key"]["id"]: row["op"] for row in folded} == {key: one["op"] for key, one in expected_rows.items()}
    for row in folded:
        one = expected_rows[row["key"]["id"]]
        assert (row["row"], row["open"], row["order"]) == (image(one), one["open"], one["order"])
    left_out = {e["commit_lsn"] for e in events if e["open"]}
    last_left_out = sum(int(one["order"][4:20], 16) in left_out for one in expected_rows.values())
    assert (reported.open, reported.open + reported.filled) == (
        sum(bool(o["open"]) for o in expected_rows.values()),
        last_left_out,
    )
    assert {op: reported.events[op] for op in "cud"} == {op: sum(e["kind"] == op for e in events) for op in "cud"}
    if every:
        in_order = sorted(all_events, key=lambda row: row["order"])
        assert [(row["op"], row["open"], row["order"]) for row in in_order] == [
            (e["kind"], e["open"], order_key_of(e)) for e in events
        ]


def test_values_that_only_another_key_may_have_are_not_folded() -> None:
    moved = event(2, "u", 1, frozenset({"large"})) | {"moved": True, "old": ["7", None, None, None]}
    late = [event(1, "d", 1), event(2, "u", 1, frozenset({"large"}))]
    for events, why in (([moved], log._LEFT_OUT), (late, "an update after the delete of its row leaves values out")):
        for dealt in ([0] * len(events), list(range(len(events))), [1] * len(events)):
            folded, _all, reported = run(events, dealt, every=False)
            assert (folded, reported.left_out) == ([], why), dealt


@example(events=[event(2, "c", 1), event(3, "c", 2)], place=(3, 1), every=True)
@given(events=histories(), place=st.tuples(st.integers(1, 25), st.integers(0, 2)), every=st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_events_before_a_truncate_are_reported_and_not_folded(
    events: list[Event], place: tuple[int, int], every: bool
) -> None:
    if not events:
        return
    layout = replace(LAYOUT, void_below=order_key(1, *place))
    folded, all_events, reported = run(events, [0] * len(events), every=every, layout=layout)
    valid = [one for one in events if (one["commit_lsn"], one["ordinal"]) >= place]
    expected_rows = expected(valid)
    assert {row["key"]["id"]: row["order"] for row in folded} == {
        key: one["order"] for key, one in expected_rows.items()
    }
    assert (reported.keys, sum(reported.events.values())) == (len(expected_rows), len(valid))
    assert len(all_events) == (len(events) if every else 0)
