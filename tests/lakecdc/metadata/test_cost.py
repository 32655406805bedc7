"""Costs by the prices of the configuration."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.cost import Prices, days_between, per_month, saved_requests

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PRICES = Prices(core_hour=0.06, thousand_reads=0.0004, currency="EUR")


def test_amounts_follow_the_prices() -> None:
    assert PRICES.of_cpu(7200) == pytest.approx(0.12)
    assert PRICES.of_reads(5_000_000) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.00 EUR"),
        (1234.567, "1,234.57 EUR"),
        (0.5, "0.50 EUR"),
        (-0.0123, "-0.012 EUR"),
        (0.0000123, "0.000012 EUR"),
    ],
)
def test_amounts_are_readable(amount: float, text: str) -> None:
    assert PRICES.format(amount) == text


def test_a_month_is_extrapolated_from_at_least_a_day() -> None:
    assert days_between(NOON - timedelta(hours=2), NOON) == 1
    assert days_between(NOON - timedelta(days=10), NOON) == 10
    assert per_month(20, 10) == pytest.approx(60.875)


def test_saved_requests_of_readers_count_since_each_job() -> None:
    jobs = [(NOON - timedelta(days=2), 10.0), (NOON - timedelta(days=1), -2.0), (NOON + timedelta(hours=1), 99.0)]
    assert saved_requests(jobs, 24, NOON) == 2 * 24 * 10 - 24 * 2


@pytest.mark.parametrize("price", [-0.1, math.inf, math.nan])
def test_odd_prices_are_refused(price: float) -> None:
    with pytest.raises(SpecError, match="core_hour"):
        Prices(core_hour=price)
