"""Texts of databases are read exactly: Arrow converts whole columns as the type's parser converts single values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakecdc.ingest.formats.text_columns import ReadTask, TextColumn, TypeRows, parse
from lakecdc.ingest.sources.mysql.types import convert
from lakecdc.ingest.sources.postgres.types import Texts

DAYS = st.dates().map(str)
MOMENTS = st.datetimes().map(lambda moment: moment.isoformat(" "))
DIGITS = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12).map(str)
FLOATS = st.floats(width=32).map(lambda value: str(value).replace("inf", "Infinity").replace("nan", "NaN"))
INTEGERS = st.integers(-(2**70), 2**70).map(str)
# texts that a database writes for values that the target's column lacks
ODD = st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "NaN", "Infinity"])
#: types of the source, their texts, and types of columns
POSTGRES = {
    "int4": (INTEGERS, ("int", "bigint", "decimal(12,2)", "decimal(5,0)")),
    "numeric": (DIGITS, ("decimal(12,2)", "decimal(20,3)", "int", "bigint", "double")),
    "float4": (FLOATS, ("float", "double")),
    "date": (DAYS, ("date", "timestamp_ntz")),
    "timestamp": (MOMENTS, ("timestamp_ntz", "timestamp", "date")),
    "timestamptz": (MOMENTS.map(lambda text: f"{text}+00"), ("timestamp", "timestamp_ntz")),
}
MYSQL = {
    "int": (INTEGERS, ("int", "bigint", "decimal(5,0)")),
    "decimal": (DIGITS, ("decimal(12,2)", "decimal(20,3)", "int")),
    "double": (FLOATS, ("double",)),
    "bit": (st.sampled_from(["0", "1"]), ("boolean", "bigint", "int")),
}


class Count:
    """An accumulator."""

    value = 0

    def add(self, more: int) -> None:
        self.value += more


def texts_of(types: dict[str, Any]) -> st.SearchStrategy[tuple[str, str, list[str | None]]]:
    """Draw a type of a source, one of a column, and texts, some of which fit neither."""
    cases = [
        st.tuples(st.just(base), st.sampled_from(kinds), st.lists(texts | ODD | st.none(), max_size=6))
        for base, (texts, kinds) in types.items()
    ]
    return st.one_of(cases)


def assert_exact(read: Callable[..., Any], base: str, kind: str, texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    values, misfits = read(column, base, kind)
    expected, unfit = parse(column, kind)
    assert values.type == expected.type and str(values.to_pylist()) == str(expected.to_pylist())
    assert sorted(misfits) == sorted(unfit)
    assert all(values[place].as_py() is None for place in misfits)


@example(("date", "date", ["infinity", "2024-02-29", None]))
@given(texts_of(POSTGRES))
def test_postgres(case: tuple[str, str, list[str | None]]) -> None:
    assert_exact(Texts(), *case)


@given(texts_of(MYSQL))
def test_mysql(case: tuple[str, str, list[str | None]]) -> None:
    assert_exact(convert, *case)


def test_infinite_times_follow_the_source_option() -> None:
    texts = pa.array(["infinity", "-infinity", "2024-01-01", None])
    for kind in ("date", "timestamp_ntz"):
        base = kind.removesuffix("_ntz")
        values, misfits = Texts("null")(texts, base, kind)
        assert (values.null_count, list(misfits)) == (3, [])
        values, misfits = Texts("bounds")(texts, base, kind)
        assert [values[i].as_py().year for i in (0, 1)] == [9999, 1] and not misfits
        values, misfits = Texts()(texts, base, kind)
        assert list(misfits) == [0, 1]
    # text is not a time
    assert Texts("null")(texts, "text", "string")[0].to_pylist() == texts.to_pylist()


@pytest.mark.parametrize(
    ("base", "kind", "text", "value"),
    [
        ("datetime", "timestamp_ntz", "2024-01-00 00:00:00", None),
        ("date", "date", "0000-00-00", None),
        # not a day of the calendar
        ("date", "date", "2024-02-31", None),
        ("date", "date", "2024-02-29", date(2024, 2, 29)),
        ("date", "string", "2024-02-31", "2024-02-31"),
        ("blob", "string", "C3A9", "é"),
        ("blob", "binary", "00FF", b"\0\xff"),
        ("varchar", "binary", "é", "é".encode()),
        ("bit", "boolean", "1", True),
        ("year", "string", "2024", "2024"),
        ("datetime", "timestamp_ntz", "2024-01-02 03:04:05.678901", datetime(2024, 1, 2, 3, 4, 5, 678901)),
        ("decimal", "decimal(5,1)", "12.30", Decimal("12.3")),
    ],
)
def test_mysql_values_are_converted(base: str, kind: str, text: str, value: Any) -> None:
    values, misfits = convert(pa.array([text]), base, kind)
    assert (values.to_pylist(), list(misfits)) == ([value], [])


def test_invalid_mysql_texts_do_not_fit() -> None:
    for base, kind, text in (("blob", "string", "C3"), ("decimal", "decimal(5,1)", "1.25"), ("text", "int", "seven")):
        assert list(convert(pa.array([text, None]), base, kind)[1]) == [0], base


def test_rows_of_a_full_load_list_their_misfits() -> None:
    columns = (TextColumn("id", "int4", "int"), TextColumn("day", "date", "date"), TextColumn("note", "text", "string"))
    rows = TypeRows(columns, ("id",), Texts())
    days, notes = pa.array(["2024-01-01", "infinity", None]), pa.array(["a", "b", None])
    # a column that was read exactly has no texts
    for ids in (pa.array(["1", None, "3"]), pa.array([1, None, 3], pa.int32())):
        assert rows.typed([ids, days, notes]).to_pylist() == [
            {"c0": 1, "c1": date(2024, 1, 1), "c2": "a", "misfits": None},
            {"c0": None, "c1": None, "c2": "b", "misfits": [("id", None), ("day", "infinity")]},
            {"c0": 3, "c1": None, "c2": None, "misfits": None},
        ]
    fitting = rows.typed([pa.array(["1"]), pa.array(["2024-01-01"]), pa.array([None], pa.string())])
    assert fitting["misfits"].to_pylist() == [None] and fitting.schema == rows.typed([ids, days, notes]).schema


def test_unfit_rows_read_by_spark_are_counted() -> None:
    rows = TypeRows((TextColumn("n", "text", "int"),), (), Texts())
    shares = {0: [["1"], ["x", "2", "y"]], 1: [["z"]]}

    def read(number: int) -> Iterator[pa.Table]:
        return (rows.typed([pa.array(texts)]) for texts in shares[number])

    left_out = Count()
    batch = pa.RecordBatch.from_pydict({"id": [0, 1]})
    typed_rows = [row for batch in ReadTask(read, left_out)([batch]) for row in batch.to_pylist()]  # type: ignore[arg-type]
    assert [row["c0"] for row in typed_rows] == [1, None, 2, None, None] and left_out.value == 3
    assert [row["misfits"] for row in typed_rows] == [None, [("n", "x")], None, [("n", "y")], [("n", "z")]]
