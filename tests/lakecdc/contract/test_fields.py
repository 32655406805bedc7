"""Parsing of values in documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_duration, parse_moment


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


def test_durations_have_one_unit() -> None:
    durations = {text: parse_duration(text, "freshness") for text in ("90s", "30m", "2h", "1d")}
    assert durations == {"90s": 90.0, "30m": 1800.0, "2h": 7200.0, "1d": 86400.0}


@pytest.mark.parametrize("text", ["", "30", "0m", "-5m", "1.5h", "30 m", "30min", "1h30m", "PT30M", "30m\n"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="freshness is .*, which is not a duration"):
        parse_duration(text, "freshness")
