"""Options of the job that erases rows."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.expiring import EraseRowsOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys_table": "a.b", "condition": "v = 1"}, "options.keys_table and options.condition are set together"),
        ({"keys_uri": "/k.csv", "keys_table": "a.b"}, "options.keys_table and options.keys_uri are set together"),
        ({"quarantine_table": "alone"}, "quarantine_table"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        EraseRowsOptions(**options)


@pytest.mark.parametrize("condition", ["id = 7", "v = 1 AND lower(`Id`) = 'x'", "t.id IS NOT NULL"])
def test_conditions_on_key_columns_are_refused(condition: str) -> None:
    with pytest.raises(SpecError, match="part of the key"):
        EraseRowsOptions(condition=condition).refuse_key_in_condition(["id"], "shop.orders")


def test_conditions_on_other_columns_are_accepted() -> None:
    EraseRowsOptions(condition="paid_id = 7").refuse_key_in_condition(["id"], "shop.orders")
    EraseRowsOptions(keys_table="shop.id").refuse_key_in_condition(["id"], "shop.orders")
