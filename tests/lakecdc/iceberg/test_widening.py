from __future__ import annotations

import itertools

import pytest

from lakecdc.iceberg.widening import common, holds, is_wider

WIDER = [("int", "bigint"), ("float", "double"), ("decimal(10,2)", "decimal(12,2)")]


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_types_are_widened_as_in_iceberg(old: str, new: str) -> None:
    assert is_wider(old, new) and not is_wider(new, old)
    assert holds(new, old) and not holds(old, new)
    assert common(old, new) == common(new, old) == new


@pytest.mark.parametrize(
    ("column", "source", "stays"),
    [
        ("string", "int", True),
        ("int", "string", False),
        ("bigint", "double", False),
        ("double", "bigint", True),
        ("double", "decimal(10,2)", False),
        ("decimal(12,2)", "decimal(12,4)", False),
        ("decimal(12,4)", "decimal(10,2)", True),
        ("decimal(12,4)", "int", False),
        ("decimal(20,0)", "bigint", True),
        ("date", "timestamp_ntz", False),
        ("timestamp", "timestamp_ntz", True),
        ("timestamp_ntz", "date", True),
        ("boolean", "int", False),
        ("struct<a: int>", "string", True),
    ],
)
def test_narrower_types_fit_into_a_column(column: str, source: str, stays: bool) -> None:
    assert holds(column, source) is stays


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int", "double", "double"),
        ("bigint", "decimal(5,2)", "decimal(21,2)"),
        ("decimal(10,2)", "decimal(10,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(10,4)", "string"),
        ("decimal(10,2)", "double", "string"),
        ("date", "timestamp_ntz", "string"),
        ("boolean", "int", "string"),
    ],
)
def test_two_types_have_a_common_type(one: str, other: str, both: str) -> None:
    assert common(one, other) == common(other, one) == both


def test_the_common_type_does_not_depend_on_order() -> None:
    kinds = ["int", "bigint", "float", "double", "decimal(10,2)", "decimal(30,9)", "decimal(3,0)", "string", "date"]
    for one, other, third in itertools.product(kinds, repeat=3):
        assert common(common(one, other), third) == common(one, common(other, third))
