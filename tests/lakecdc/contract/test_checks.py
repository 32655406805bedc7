"""Parsing of checks."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.checks import Condition, NotNull, RowCount
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse
from lakecdc.contract.options import CheckTablesOptions


def parsed(*checks: dict[str, Any]) -> tuple[Any, ...]:
    return parse(CheckTablesOptions, {"checks": {"shop.orders": list(checks)}}, "options").checks["shop.orders"]


def test_checks_are_distinguished_by_type() -> None:
    checks = parsed(
        {"type": "not_null", "columns": ["id"]},
        {"type": "condition", "condition": "amount >= 0", "where": "day > '2026-01-01'", "severity": "warn"},
        {"type": "row_count", "min": 1},
    )
    assert checks == (
        NotNull(columns=("id",)),
        Condition(condition="amount >= 0", where="day > '2026-01-01'", severity="warn"),
        RowCount(min=1),
    )
    assert [check.title for check in checks] == [
        "not_null(id)",
        "condition(amount >= 0) where day > '2026-01-01'",
        "row_count",
    ]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"type": "not_nul", "columns": ["id"]}, r"options.checks.shop.orders\[0\].type is 'not_nul'"),
        ({"type": ["not_null"], "columns": ["id"]}, "must be one of not_null, unique"),
        ({"columns": ["id"]}, "type is None"),
        ("not_null", "must be an object"),
        ({"type": "not_null", "column": "id"}, "Did you mean 'columns'"),
        ({"type": "not_null", "columns": []}, "names no columns"),
        ({"type": "unique", "columns": []}, "names no columns"),
        ({"type": "accepted_values", "column": "state", "values": []}, "has no values"),
        ({"type": "accepted_values", "column": "state", "values": [None]}, "has None"),
        ({"type": "row_count"}, "has no bounds"),
        ({"type": "row_count", "max_change": -1}, "not 0 or more"),
        ({"type": "row_count", "max_change": 0.1, "last": 0}, "not 1 or more runs"),
        ({"type": "row_count", "max_change": 0.1, "where": "id > 1"}, "snapshots only count all rows"),
        ({"type": "freshness", "max_age": 0}, "not above 0"),
        ({"type": "freshness", "max_age": 60, "where": "id > 1"}, "no column"),
    ],
)
def test_an_empty_check_is_refused(check: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parsed(check)
