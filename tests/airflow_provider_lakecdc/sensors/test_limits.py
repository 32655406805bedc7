"""Conditions of sensors over several tables."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.sensors.polling import check_limit

FEW, MANY = 1, 9


def is_past(value: int) -> bool:
    return value > 5


@pytest.mark.parametrize(
    ("values", "some", "expected"),
    [
        ({"a.b": FEW, "a.c": FEW}, True, None),
        ({"a.b": FEW, "a.c": MANY, "a.d": None}, True, {"a.c": MANY}),
        ({"a.b": FEW, "a.c": MANY}, False, None),
        # a missing table may later exceed the limit
        ({"a.b": FEW, "a.c": None}, False, None),
        ({"a.b": FEW, "a.c": FEW}, False, {"a.b": FEW, "a.c": FEW}),
    ],
)
def test_above_needs_one_table_and_below_needs_all(
    values: dict[str, int | None], some: bool, expected: dict[str, int] | None
) -> None:
    assert check_limit(values, is_past, "Debt", some=some) == expected


@pytest.mark.parametrize(
    ("values", "some", "expected"),
    [
        ({"a.b": FEW}, True, None),
        ({"a.b": MANY}, True, {"a.b": MANY}),
        # the wait continues for another table
        ({"a.b": MANY}, False, None),
        ({"a.b": FEW}, False, "is left to it"),
        ({}, True, "is left to it"),
    ],
)
def test_an_unreadable_table_leaves_the_decision_to_the_others(
    values: dict[str, int], some: bool, expected: dict[str, int] | str | None
) -> None:
    measured: dict[str, int | None | Exception] = {"a.broken": OSError("no such bucket"), **values}
    if isinstance(expected, str):
        with pytest.raises(LakecdcJobError, match=r"Debt cannot be read\. a\.broken: OSError: no such bucket"):
            check_limit(measured, is_past, "Debt", some=some)
    else:
        assert check_limit(measured, is_past, "Debt", some=some) == expected
