"""Order of rows in Arrow tables, compared with Python's sort and Spark's."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecdc.iceberg.sort_order import SortField, SortOrder
from lakecdc.maintain.rewriting.placing import Placing
from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.model.columns import arrow_type
from lakecdc.writer.transforms import Transform
from tests.conftest import Lake

TIMES = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))
ODD_TEXTS = ["", "a", "a\0", "ab", "\ue000", "\U0001f600"]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(ODD_TEXTS)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-3, 3),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3),
    pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0]),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, 1.0]),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    pa.decimal128(38, 5): st.integers(-(10**20), 10**20).map(lambda n: Decimal(n).scaleb(-5)),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=4),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1800, 1, 1), date(2200, 1, 1)),
    pa.timestamp("us", "UTC"): TIMES.map(lambda t: t.replace(tzinfo=UTC)),
    pa.timestamp("us"): TIMES,
    pa.uuid(): st.uuids() | st.just(uuid.UUID(int=7)),
    pa.binary(4): st.binary(min_size=4, max_size=4),
    pa.time64("us"): st.times(),
    pa.timestamp("ns"): TIMES,
}
WITHOUT_TRANSFORMS = (pa.uuid(), pa.binary(4), pa.time64("us"), pa.timestamp("ns"))
SIZES = st.integers(0, 40)


def rank(value: Any) -> Any:
    """Return a value as Spark compares it."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def in_order(order: RunOrder, rows: pa.Table) -> list[int]:
    """Return the positions of rows in an order, by Python's sort."""
    columns = []
    for field in order.fields:
        values = rows[field.source].combine_chunks()
        columns.append((field, (field.transform.values(values) if field.transform else values).to_pylist()))

    def compared(one: int, other: int) -> int:
        for field, values in columns:
            left, right = values[one], values[other]
            if left is None or right is None:
                if (left is None) != (right is None):
                    return -1 if (left is None) == field.nulls_first else 1
            elif rank(left) != rank(right):
                return -1 if (rank(left) < rank(right)) != field.descending else 1
        return 0

    return sorted(range(rows.num_rows), key=cmp_to_key(compared))


@st.composite
def ordered_rows(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SIZES) -> tuple[RunOrder, pa.Table]:
    """Draw rows of random types with their numbers, and an order of them."""
    size, fields, columns = draw(sizes), [], {}
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(list(TYPES)))
        value = TYPES[kind] | st.none() if draw(st.booleans()) else TYPES[kind]
        few = draw(st.lists(value, min_size=1, max_size=4))
        values = draw(st.lists(st.sampled_from(few) if draw(st.booleans()) else value, min_size=size, max_size=size))
        columns[f"c{number}"] = pa.array(values, kind)
        transform = draw(st.sampled_from(transforms(kind, f"c{number}")))
        fields.append(RunField(f"c{number}", transform, draw(st.booleans()), draw(st.booleans())))
    return RunOrder(tuple(fields)), pa.table({**columns, "n": pa.array(range(size), pa.int64())})


def transforms(kind: pa.DataType, column: str) -> list[Transform | None]:
    """Return the transforms of a type, including None."""
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind) or kind in WITHOUT_TRANSFORMS:
        return [None]
    sized = [Transform("bucket", column, 3)]
    if not pa.types.is_temporal(kind):
        return [None, *sized, Transform("truncate", column, 2)]
    units = ["year", "month", "day", *([] if pa.types.is_date(kind) else ["hour"])]
    return [None, *sized, *(Transform(unit, column) for unit in units)]


@settings(max_examples=200, deadline=None)
@given(ordered_rows())
def test_rows_are_sorted_as_python_sorts_them(case: tuple[RunOrder, pa.Table]) -> None:
    order, rows = case
    assert order.sorted(rows)["n"].to_pylist() == in_order(order, rows)


@settings(max_examples=80, deadline=None)
@given(ordered_rows(), st.integers(1, 6))
def test_cuts_divide_sorted_rows_into_ranges_of_keys(case: tuple[RunOrder, pa.Table], outputs: int) -> None:
    order, rows = case
    cuts = pickle.loads(pickle.dumps(order.cuts(rows, outputs)))
    assert len(cuts) < outputs and cuts == sorted(set(cuts))
    ordered = order.sorted(rows)
    pieces = order.cut(ordered, cuts)
    assert not pieces or pa.concat_tables(piece for _, piece in pieces)["n"].equals(ordered["n"])
    for number, piece in pieces:
        keys = order.keys(piece)
        for place in range(piece.num_rows):
            assert sum(cut <= keys(place) for cut in cuts) == number
        placing = Placing(order, {0: cuts}, {0: order.cuts(rows, 9)})
        share = placing.share(0, number, number + 1, rows)
        parts = placing.parts_of(0, number, number + 1)
        assert parts == [
            cut for cut in placing.parts[0] if sum(low <= cut for low in cuts) == number and cut not in cuts
        ]
        assert share["n"].equals(piece["n"])
    # the lowest key is not a cut, so that the first file has rows
    assert not rows.num_rows or [number for number, _ in pieces] == list(range(len(cuts) + 1))


@pytest.mark.parametrize(("descending", "nulls_first"), [*itertools.product((True, False), (True, False))])
def test_values_with_a_shared_prefix_are_distinguished(descending: bool, nulls_first: bool) -> None:
    dice = random.Random(7)
    texts = ["".join(dice.choices(["a", "\0", "aaaaaaaa", "bbbbbbb"], k=dice.randint(0, 12))) for _ in range(1000)]
    # a column with repeated values is sorted by its distinct values
    assert len(set(texts)) > 700
    numbers = [dice.choice([dice.random(), dice.choice([0.1, 0.2])]) for _ in texts]
    rows = pa.table(
        {
            "country": [dice.choice(["de", "fr", None]) for _ in texts],
            "text": [None if number % 7 == 0 else text for number, text in enumerate(texts)],
            "same": ["same" * 3 + text for text in texts],
            "fixed": pa.array([text.encode().ljust(96, b"\0") for text in texts], pa.binary(96)),
            "number": numbers,
            "n": range(len(texts)),
        }
    )
    for names in (["text"], ["same"], ["fixed"], ["number"], ["country", "text"], ["number", "same"]):
        order = RunOrder(tuple(RunField(name, None, descending, nulls_first) for name in names))
        assert order.sorted(rows)["n"].to_pylist() == in_order(order, rows), names


def test_equal_values_stay_in_one_range() -> None:
    order = RunOrder((RunField("a"),))
    rows = pa.table({"a": [1] * 10 + [2]})
    assert [(n, p["a"].to_pylist()) for n, p in order.cut(rows, order.cuts(rows, 11))] == [(0, [1] * 10), (1, [2])]


def test_orders_that_tasks_cannot_evaluate_are_refused() -> None:
    def of(column: str, transform: str = "identity") -> RunOrder | None:
        types = {"id": "bigint", "at": "timestamp", "x": "double", "nano": "timestamp_ns", "u": "uuid"}
        return RunOrder.of(SortOrder((SortField(column, transform, column, "lake"),)), types)

    assert of("id", "bucket[8]") == RunOrder((RunField("id", Transform("bucket", "id", 8)),))
    assert of("x") == RunOrder((RunField("x"),))
    assert of("nano") == RunOrder((RunField("nano"),))
    refused = (
        ("list",),
        ("nano", "day"),
        ("u", "bucket[8]"),
        ("point.x",),
        ("id", "day"),
        ("x", "bucket[8]"),
        ("at", "void"),
        ("at", "zorder"),
    )
    assert [of(*case) for case in refused] == [None] * len(refused)


def test_the_order_equals_that_of_spark(lake: Lake) -> None:
    values: dict[str, tuple[str, list[Any]]] = {
        "i": ("int", [3, -7, 0, 2**31 - 1]),
        "x": ("double", [0.0, -0.0, math.nan, math.inf, -math.inf, -1.5]),
        "f": ("float", [0.5, -0.0, math.nan, -math.inf]),
        "s": ("string", ["", "a", "a\0", "ab", "Z", "\ue000", "\U0001f600", "aaaaaaaaab"]),
        "b": ("binary", [b"", b"\0", b"\xff", b"\x7f\x80"]),
        "t": ("boolean", [True, False]),
        "d": ("date", [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]),
        "at": ("timestamp", [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)]),
        "m": ("decimal(9,2)", [Decimal("-1.50"), Decimal("9999999.99"), Decimal("0.00")]),
        "w": ("decimal(30,4)", [Decimal("-12345678901234567890.5"), Decimal("12345678901234567890.5"), Decimal(0)]),
    }
    types = {name: kind for name, (kind, _) in values.items()}
    columns = {
        name: pa.array(itertools.islice(itertools.cycle([*some, None]), 300), arrow_type(kind))
        for name, (kind, some) in values.items()
    }
    rows = pa.table({**columns, "n": pa.array(range(300), pa.int64())})
    types["n"] = "bigint"
    frame = lake.spark.createDataFrame(rows).coalesce(1).cache()
    cases: list[tuple[tuple[str, str], ...]] = [((name, "identity"),) for name in values]
    cases += [(("s", "truncate[1]"), ("x", "identity")), (("at", "day"), ("i", "bucket[3]")), (("w", "truncate[50]"),)]
    for number, (fields, descending) in enumerate(itertools.product(cases, (True, False))):
        nulls_first = number % 4 in (1, 2)
        by = [SortField(c, transform, f"`{c}`", "lake", descending, nulls_first) for c, transform in fields]
        # a last field makes the order total
        order = SortOrder((*by, SortField("n", "identity", "n", "lake")))
        runs = RunOrder.of(order, types)
        assert runs is not None
        by_spark = frame.sortWithinPartitions(*(field.spark_column() for field in order.fields)).select("n")
        assert runs.sorted(rows)["n"].to_pylist() == by_spark.toArrow()["n"].to_pylist(), order.describe()
    frame.unpersist()
