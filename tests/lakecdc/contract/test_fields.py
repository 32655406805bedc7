"""Reading of values in documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lakecdc.contract.fields import parse_moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-01 05:00:00", datetime(2026, 1, 1, 5, tzinfo=UTC)),
        ("2026-01-01T05:00:00Z", datetime(2026, 1, 1, 5, tzinfo=UTC)),
        ("2026-01-01T05:00:00+02:00", datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_moments_without_a_zone_are_utc(text: str, moment: datetime) -> None:
    assert parse_moment(text, "moment") == moment
