"""Conditions of sensors over several tables."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.sensors.polling import Until, check_limit, evaluate_limit

FEW, MANY = 1, 9


def is_past(value: int) -> bool:
    return value > 5


@pytest.mark.parametrize(
    ("values", "until", "expected"),
    [
        ({"a.b": FEW, "a.c": FEW}, "some", None),
        ({"a.b": FEW, "a.c": MANY, "a.d": None}, "some", {"a.c": MANY}),
        ({"a.b": FEW, "a.c": MANY}, "none", None),
        # a missing table may later exceed the limit
        ({"a.b": FEW, "a.c": None}, "none", None),
        ({"a.b": FEW, "a.c": FEW}, "none", {"a.b": FEW, "a.c": FEW}),
    ],
)
def test_above_needs_one_table_and_below_needs_all(
    values: dict[str, int | None], until: Until, expected: dict[str, int] | None
) -> None:
    assert evaluate_limit(values, is_past, until) == expected


@pytest.mark.parametrize(
    ("values", "until", "expected"),
    [
        ({"a.b": FEW}, "some", None),
        ({"a.b": MANY}, "some", {"a.b": MANY}),
        # the wait continues for another table
        ({"a.b": MANY}, "none", None),
        ({"a.b": FEW}, "none", "is left to it"),
        ({}, "some", "is left to it"),
    ],
)
def test_an_unreadable_table_leaves_the_decision_to_the_others(
    values: dict[str, int], until: Until, expected: dict[str, int] | str | None
) -> None:
    measured: dict[str, int | None | Exception] = {"a.broken": OSError("no such bucket"), **values}
    if isinstance(expected, str):
        with pytest.raises(LakecdcJobError, match=r"Debt cannot be read\. a\.broken: OSError: no such bucket"):
            check_limit(measured, is_past, until, "Debt")
    else:
        assert check_limit(measured, is_past, until, "Debt") == expected
