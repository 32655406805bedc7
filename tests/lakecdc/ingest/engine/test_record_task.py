"""Records become events in a task: columns are typed, order and key are read, misfits are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.layout import ORDER_PARTS, order_texts
from lakecdc.ingest.engine.records import RecordLayout, RowReading, instants, typed_texts
from lakecdc.model.order import order_key

Row = Mapping[str, str | None]


def layout(types: dict[str, str], key: tuple[str, ...] = ("id",), **reading: object) -> RecordLayout:
    columns = tuple(Column(name, kind) for name, kind in types.items())
    texts = frozenset(name for name, kind in types.items() if kind != "string")
    places = tuple(range(len(columns)))
    return RecordLayout(columns, places, texts, key, "u", ("value", "arrival"), RowReading(1, **reading))  # type: ignore[arg-type]


def records(
    *rows: Mapping[str, str | None], problems: dict[int, str] | None = None, **more: pa.Array
) -> pa.RecordBatch:
    columns = {
        "value": pa.array([str(row).encode() for row in rows]),
        "arrival": pa.array(range(len(rows)), pa.int64()),
        "cells": pa.array(rows, pa.struct([(name, pa.string()) for name in rows[0]])),
        "problem": pa.array([(problems or {}).get(i) for i in range(len(rows))], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def orders(events: pa.RecordBatch) -> list[str]:
    return order_texts(1, *(events.column(name).to_numpy() for name in ORDER_PARTS)).to_pylist()


def reasons(events: pa.RecordBatch) -> list[tuple[str, str] | None]:
    return [None if r is None else (r["rule"], r["reason"]) for r in events.column("rejected").to_pylist()]


def test_texts_are_typed_and_a_misfit_rejects_only_its_row() -> None:
    rows: list[Row] = [
        {"id": "1", "price": " 1.5 ", "name": "a"},
        {"id": "2", "price": "1.005", "name": " b "},
        {"id": "3", "price": "  ", "name": ""},
        {"id": "x", "price": "1", "name": None},
    ]
    events = layout({"id": "int", "price": "decimal(6,2)", "name": "string"}).typed(records(*rows))
    assert events.column("c1").to_pylist() == [Decimal("1.50"), None, None, Decimal("1.00")]
    assert events.column("c2").to_pylist() == ["a", " b ", "", None]
    assert events.column("k0").to_pylist() == [1, 2, 3, None]
    fitting = "values do not fit their columns: "
    assert reasons(events) == [None, ("type", f"{fitting}price (decimal(6,2))"), None, ("type", f"{fitting}id (int)")]
    message, rejected = (events.column(name).to_pylist() for name in ("message", "rejected"))
    assert message[0] is None and message[1] == {"value": str(rows[1]).encode(), "arrival": 1}
    assert rejected[1]["key"] == {"k0": 2} and rejected[3]["key"] == {"k0": None}
    assert rejected[1]["order"] == orders(events)[1]


def test_a_broken_record_is_rejected_without_a_key() -> None:
    rows: list[Row] = [{"id": "1", "n": "x"}, {"id": None, "n": "x"}, {"id": None, "n": "1"}]
    events = layout({"id": "int", "n": "int"}).typed(records(*rows, problems={0: "fields: too few: 1"}))
    assert [r[0] for r in reasons(events) if r] == ["fields", "type", "no-key"]
    assert reasons(events)[0] == ("fields", "too few: 1")
    assert [r["key"] for r in events.column("rejected").to_pylist()] == [{"k0": None}] * 3


def test_the_order_column_sorts_negative_numbers_below() -> None:
    rows: list[Row] = [{"id": str(i), "at": at} for i, at in enumerate(["-3", "5", "0", None])]
    events = layout({"id": "int", "at": "bigint"}, order_by="at").typed(records(*rows))
    assert [r and r[0] for r in reasons(events)] == [None, None, None, "no-order"]
    expected = [order_key(1, (at + 2**63) % 2**64, offset=i) for i, at in enumerate([-3, 5, 0])]
    assert orders(events)[:3] == expected and sorted(expected) == [expected[0], expected[2], expected[1]]
    lowest = layout({"id": "int", "at": "bigint"}, order_by="at", lowest_without=True).typed(records(*rows))
    assert reasons(lowest) == [None] * 4 and min(orders(lowest)) == orders(lowest)[3]
    unordered = layout({"id": "int", "at": "bigint"}).typed(records(*rows))
    assert orders(unordered) == sorted(orders(unordered)) and not any(reasons(unordered))


def test_times_in_their_zone_give_order_and_source_time() -> None:
    rows: list[Row] = [{"id": "1", "at": "2026-07-01 12:00:00"}, {"id": "2", "at": "2026-01-01"}]
    events = layout({"id": "int", "at": "timestamp_ntz"}, order_by="at", times=True, zone="Europe/Berlin").typed(
        records(*rows)
    )
    moments = [datetime(2026, 7, 1, 10, tzinfo=UTC), datetime(2025, 12, 31, 23, tzinfo=UTC)]
    micros = [int(m.timestamp()) * 1_000_000 for m in moments]
    assert events.column("time_us").to_pylist() == micros
    assert [int(order[4:20], 16) - 2**63 for order in orders(events)] == micros
    plain = layout({"id": "int", "at": "timestamp_ntz"}, order_by="at").typed(records(*rows))
    assert plain.column("time_us").null_count == 2


def test_values_prepared_by_spark_replace_cells() -> None:
    nested = pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))
    batch = records({"id": "1", "s": "…"}, {"id": "2", "s": "?"}, c1=nested)
    columns = (Column("id", "int"), Column("s", "struct<a:int>"))
    of = RecordLayout(columns, (0, 1), frozenset({"id"}), ("id",), "c", ("value", "arrival"), RowReading(1))
    events = of.typed(batch)
    assert events.column("c1").to_pylist() == [{"a": 1}, None]
    assert reasons(events) == [None, ("type", "values do not fit their columns: s (struct<a:int>)")]


def test_empty_records_keep_the_event_schema() -> None:
    of, some = layout({"id": "int"}), records({"id": "1"})
    assert of.typed(some.slice(0, 0)).schema.equals(of.typed(some).schema)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
@given(minutes=st.lists(st.integers(0, 60 * 24 * 800), min_size=1, max_size=20))
def test_local_times_become_instants_with_the_earlier_offset_in_gaps(zone: str, minutes: list[int]) -> None:
    times = [datetime(2024, 1, 1) + timedelta(minutes=m) for m in minutes]
    expected = [t - (t.replace(tzinfo=ZoneInfo(zone)).utcoffset() or timedelta()) for t in times]
    moments = instants(pa.array(times, pa.timestamp("us")), zone).cast(pa.timestamp("us")).to_pylist()
    assert moments == expected


def test_days_begin_at_midnight_and_numbers_beyond_64_bits_are_null() -> None:
    assert instants(pa.array([date(1970, 1, 2)]), "UTC").to_pylist() == [86_400_000_000]
    moments = instants(pa.array([Decimal(2**63), Decimal(-(2**63)), None], pa.decimal128(38, 0)), "UTC")
    assert moments.to_pylist() == [None, -(2**63), None]


def test_texts_of_every_type_are_trimmed_and_empty_ones_are_null() -> None:
    for kind, text in (
        ("bigint", "7"),
        ("double", "1e3"),
        ("boolean", "t"),
        ("date", "2026-01-02"),
        ("binary", "eA=="),
    ):
        values, wrong = typed_texts(pa.array([f" {text} ", "", "  ", None, "?"]), kind)
        assert [v is None for v in values.to_pylist()] == [False, True, True, True, True]
        assert wrong == [4]
