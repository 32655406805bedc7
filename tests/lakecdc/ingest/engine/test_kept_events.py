"""Quarantined rows become events in plain Python: values by their types, columns by their present names."""

from __future__ import annotations

import json
from decimal import Decimal
from math import copysign
from typing import Any

import pytest

from lakecdc.contract.target import Target
from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.kept_rows import DecodeKept, Shape, StaysError, find_parser, shape_text
from lakecdc.ingest.envelopes.json_values import parse_json
from lakecdc.model.columns import MICROSECONDS_OF_A_DAY
from lakecdc.model.order import RANK_READ, order_key
from lakecdc.model.tokens import MisfitError, as_token

FITS = [
    ("date", "date", '"2024-02-29"', 19_782),
    ("timestamp_ntz", "timestamp_ntz", '"1970-01-02T00:00:00.000001"', MICROSECONDS_OF_A_DAY + 1),
    ("timestamp", "date", '"1970-01-02T00:00:00.000000Z"', 1),
    ("date", "timestamp", '"1970-01-02"', MICROSECONDS_OF_A_DAY),
    ("timestamp", "string", '"2024-02-01T03:04:05.120000Z"', "2024-02-01 03:04:05.12"),
    ("timestamp_ntz", "string", '"2024-02-01T03:04:00.000000"', "2024-02-01 03:04:00"),
    ("date", "string", '"2024-02-01"', "2024-02-01"),
    ("decimal(38,10)", "string", "1.00E-8", "0.0000000100"),
    ("decimal(3,1)", "decimal(12,4)", "1.5", Decimal("1.5000")),
    ("double", "string", "1.0E10", "1.0E10"),
    ("double", "double", '"-Infinity"', float("-inf")),
    ("float", "double", "0.1", 0.1),
    ("int", "decimal(3,1)", "7", Decimal("7.0")),
    ("string", "int", '"17"', 17),
    ("binary", "string", '"AP+A"', "AP+A"),
    ("struct<a:int>", "string", '{"a": 1, "b": [1.50]}', '{"a":1,"b":[1.50]}'),
    ("struct<a:double>", "struct<a:double>", '{"a": 1.50}', '{"a":1.50}'),
    ("string", "struct<a:int>", '" {\\"a\\": 1}"', '{"a":1}'),
    ("variant", "variant", '"text"', '"text"'),
    ("variant", "variant", "true", "true"),
    ("string", "variant", "true", "true"),
    ("array<int>", "array<int>", "null", None),
    ("timestamp", "string", "null", None),
    ("decimal(3,1)", "string", "null", None),
]
MISFITS = [
    ("string", "int", '""'),
    ("string", "int", '" 17"'),
    ("string", "date", '"infinity"'),
    ("string", "date", '"2024-02-01 10:00:00"'),
    ("string", "struct<a:int>", '"{\\"a\\": 1,}"'),
    ("bigint", "bigint", '"x"'),
    ("bigint", "int", "2147483648"),
    ("bigint", "double", "9007199254740993"),
    ("timestamp", "timestamp", '"+294247-01-10T04:00:54.775807Z"'),
    ("timestamp", "date", '"1970-01-02T00:00:00.000001Z"'),
    ("timestamp", "timestamp_ntz", '"+12345-01-01T00:00:00.000000Z"'),
    ("date", "date", '"+12921-08-18"'),
    ("date", "date", '"-0001-12-31"'),
    ("date", "date", '"0000-01-01"'),
]


@pytest.mark.parametrize(("source_type", "column", "text", "value"), FITS)
def test_quarantined_values_are_read_exactly(source_type: str, column: str, text: str, value: Any) -> None:
    assert find_parser(source_type, column)(as_token(parse_json(text))) == value


@pytest.mark.parametrize(("source_type", "column", "text"), MISFITS)
def test_values_beyond_a_type_do_not_fit(source_type: str, column: str, text: str) -> None:
    with pytest.raises(MisfitError):
        find_parser(source_type, column)(as_token(parse_json(text)))


def test_a_negative_zero_keeps_its_sign() -> None:
    assert copysign(1, find_parser("double", "double")(as_token(parse_json("-0.0")))) == -1


@pytest.mark.parametrize(("option", "days"), [("null", (None, None)), ("bounds", (-719_162, 2_932_896))])
def test_infinite_dates_follow_the_source_option(option: str, days: tuple[int | None, int | None]) -> None:
    parse = find_parser("string", "date", option)
    assert (parse("-infinity"), parse("infinity"), parse("1970-01-01")) == (*days, 0)


def test_columns_are_followed_by_their_numbers() -> None:
    columns = dict.fromkeys(("id", "a", "b", "gone", "hidden"), "string")
    shape = Shape(columns, {"id": 1, "a": 2, "b": 3, "gone": 4, "hidden": 5}, ("id",))
    # a and b have swapped names; a new column reuses the name of a dropped one
    now = {"key": 1, "b": 2, "a": 3, "gone": 6}
    target = Target("test.t", exclude_columns=("hidden",), on_dropped_column="drop")
    assert shape.names(target, now) == {"id": "key", "a": "b", "b": "a"}
    assert shape.names(Target("test.t"), {}) == {name: name for name in columns}


def document(**members: Any) -> dict[str, Any]:
    row = {"op": "u", "row": {"id": 1, "n": "5", "text": "t"}, "key": ["id"], "columns": {"id": "int", "n": "string"}}
    return row | members


def task(*key: str) -> DecodeKept:
    columns = {"id": Column("id", "int"), "n": Column("n", "string"), "now": Column("text", "string")}
    types = {"more": "date", "id": "int", "n": "int", "now": "string"}
    return DecodeKept(types, key, {shape_text(document()): columns}, "quarantine")


def event(document: dict[str, Any], *key: str, place: str = "p") -> dict[str, Any]:
    order = order_key(1, 5, 0, RANK_READ)
    return task(*key).event(parse_json(json.dumps(document)), order, place)


def test_an_event_has_the_columns_of_the_table() -> None:
    decoded = event(document(open=["text", "gone"], old_key={"id": 2}), "id")
    assert decoded == {
        "op": "u",
        "key": {"id": 1},
        "row": {"more": None, "id": 1, "n": 5, "now": "t"},
        "open": ["now"],
        "old_key": {"id": 2},
        "order": order_key(1, 5, 0, RANK_READ),
    }


def test_a_delete_has_a_row_if_the_table_has_no_key() -> None:
    assert event(document(op="d"), "id")["row"] is None
    assert event(document(op="d"))["row"]["n"] == 5


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (document(row={"id": 1, "n": "", "text": ""}), "values do not fit their columns: n (int)"),
        (document(row={"n": "5"}), "no value for a key column"),
        (document(old_key={}), "the old key does not fit its columns"),
        (document(key=["n"]), "it was stored when the table had another key"),
        (document(key=None), "an earlier release stored less of it than a replay needs"),
        (document(row={"id": "x", "n": ""}), "values do not fit their columns: id (int), n (int)"),
        (document(op=None), "it is not the JSON of a change"),
        (document(row=None), "it is not the JSON of a change"),
        ({"id": 1}, "it is not the JSON of a change"),
        ([], "it is not the JSON of a change"),
    ],
)
def test_rejected_rows_carry_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(StaysError) as stays:
        event(value, "id")
    assert str(stays.value).partition(";")[0] == reason


@pytest.mark.parametrize("member", [{"open": 5}, {"open": [[]]}, {"row": {"id": 1, "n": True, "text": {}}}])
def test_odd_members_do_not_fail_a_task(member: dict[str, Any]) -> None:
    assert event(document(**member), "id")["key"] == {"id": 1}


def test_equal_rows_of_a_full_load_are_distinguished() -> None:
    orders = [event(document(op="r"), place=f"full load ab#{number}")["order"] for number in (1, 2, 17)]
    assert orders == [order_key(1, 5, 0, RANK_READ, 0, number) for number in (0, 1, 16)]
    assert event(document(op="c"), place="full load ab#2")["order"] == order_key(1, 5, 0, RANK_READ)
