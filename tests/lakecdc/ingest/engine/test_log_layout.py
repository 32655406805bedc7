"""Log events get the column types of the source table, and are rejected if a value does not fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa

from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.layout import without_void
from lakecdc.ingest.engine.log_layout import LogLayout, LogText, LogVersion
from lakecdc.ingest.sources.postgres.types import Texts
from lakecdc.model.order import order_key

SCHEMA = pa.schema(
    [
        *(("version", pa.int32()), ("kind", pa.string())),
        *((name, pa.int64()) for name in ("commit_lsn", "ordinal", "commit_micros")),
        *((name, pa.list_(pa.string())) for name in ("new", "open", "old")),
        ("moved", pa.bool_()),
    ]
)
TEXTS = {"id": LogText(0, "int4"), "day": LogText(1, "date")}
LAYOUT = LogLayout(
    (LogVersion(0, TEXTS, {"id": TEXTS["id"]}),),
    (Column("id", "int"), Column("day", "date")),
    ("id",),
    Texts(),
    100,
)


def event(lsn: int, kind: str, new: list[str | None] | None, old: list[str | None] | None = None, **more: Any) -> Any:
    about = {"version": 0, "kind": kind, "commit_lsn": lsn, "ordinal": 1, "commit_micros": 7000, "moved": None}
    return {**about, "new": new, "old": old, "open": None, **more}


def typed(layout: LogLayout, *events: Any) -> list[dict[str, Any]]:
    return layout.typed(pa.Table.from_pylist(list(events), SCHEMA), 1).to_pylist()


def test_events_become_rows() -> None:
    rows = typed(
        LAYOUT, event(1, "c", ["1", "2024-01-01"]), event(2, "d", None, ["1", None]), event(100, "c", ["9", None])
    )
    assert [(row["op"], row["k0"], row["c0"], row["c1"]) for row in rows] == [
        ("c", 1, 1, date(2024, 1, 1)),
        ("d", 1, None, None),
    ], "the end belongs to the next round"
    assert [(row["pos"], row["ord"], row["time_ms"], row["time_us"]) for row in rows] == [
        (1, 1, 7, 7000),
        (2, 1, 7, 7000),
    ]
    assert not any(row["rejected"] for row in rows)


def test_times_before_1970_have_an_order() -> None:
    (row,) = typed(LAYOUT, event(1, "c", ["1", None], commit_micros=-5_000_000))
    assert (row["time_ms"], row["time_us"]) == (0, -5_000_000)


def test_misfits_reject_only_their_event() -> None:
    rows = typed(
        LAYOUT,
        event(1, "c", ["1", "infinity"]),
        event(2, "u", [None, "2024-01-01"]),
        event(3, "d", None, ["x", None]),
        event(4, "u", ["5", "2024-01-01"], ["y", None], moved=True),
        event(5, "c", ["6", None]),
    )
    assert [bool(row["rejected"]) for row in rows] == [True, True, True, True, False]
    messages = [row["message"] for row in rows[:4]]
    assert [one["misfits"] for one in messages] == [["day"], ["id"], ["id"], ["id"]]
    assert [one["row"] for one in messages][0] == {"id": 1, "day": None}
    assert messages[0]["texts"] == {"id": "1", "day": "infinity"}
    assert messages[2]["texts"] == {"id": "x", "day": None}
    assert (messages[3]["old_key"], messages[3]["old_texts"]) == ({"id": None}, {"id": "y"})
    assert [one["old_key"] for one in messages[:3]] == [None] * 3
    assert rows[0]["rejected"] == {"order": order_key(1, 1, 1, time=7)}


def test_an_unfit_key_change_is_rejected_with_its_delete() -> None:
    events = [event(4, "d", None, ["1", None]), event(4, "u", ["5", "infinity"], ["1", None], moved=True)]
    events += [event(5, "d", None, ["1", None])]
    left = typed(replace(LAYOUT, moves_left_out=frozenset({(4, 1)})), *events)
    assert [(row["op"], row["pos"]) for row in left] == [("u", 4), ("d", 5)]


def test_added_and_renamed_columns_are_typed() -> None:
    later = {"id": LogText(1, "int4"), "day": LogText(0, "date"), "rest": LogText(2, "int4")}
    layout = replace(
        LAYOUT,
        versions=(
            *(replace(v, renamed={"was": "day"}) for v in LAYOUT.versions),
            LogVersion(1, later, {"id": later["id"]}),
        ),
        columns=(*LAYOUT.columns, Column("rest", "int", fill=7)),
    )
    rows = typed(
        layout,
        event(1, "u", ["1", None], open=["was"]),
        event(2, "c", ["2024-01-01", "2", "3"], version=1),
        event(3, "u", ["2024-01-01", "2", "x"], version=1),
    )
    assert [(row["c0"], row["c1"], row["c2"], row["open"]) for row in rows] == [
        (1, None, 7, ["day"]),
        (2, date(2024, 1, 1), 3, None),
        (2, date(2024, 1, 1), None, None),
    ]
    assert [bool(row["rejected"]) for row in rows] == [False, False, True]


def test_only_misfits_before_a_truncate_are_folded() -> None:
    table = LAYOUT.typed(
        pa.Table.from_pylist(
            [event(1, "c", ["1", None]), event(2, "c", ["2", "infinity"]), event(3, "c", ["3", None])], SCHEMA
        ),
        1,
    )
    (batch,) = table.combine_chunks().to_batches()
    assert without_void(batch, order_key(1, 3)).column("pos").to_pylist() == [2, 3]


def test_a_delete_without_a_key_has_the_whole_row() -> None:
    layout = replace(LAYOUT, versions=(LogVersion(0, TEXTS, TEXTS),), key=())
    (row, bad) = typed(layout, event(1, "d", None, ["1", "2024-01-01"]), event(2, "d", None, ["1", "infinity"]))
    assert (row["op"], row["c0"], row["c1"]) == ("d", 1, date(2024, 1, 1))
    assert bad["message"]["misfits"] == ["day"] and bad["message"]["texts"]["day"] == "infinity"
