"""Options of the jobs that restore past states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.past import RestoreMomentOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"moment": "yesterday"}, "not an ISO-8601 time"),
        ({"branch": "main"}, "reserved"),
        ({"branch": "lakecdc-moment"}, "reserved"),
        ({"keep_for": 0.0}, "not above 0"),
        ({"quarantine_table": "alone"}, "quarantine_table"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RestoreMomentOptions(**options)


def test_the_branch_is_named_after_the_moment() -> None:
    moment = datetime(2026, 1, 30, 23, 3, tzinfo=UTC)
    assert RestoreMomentOptions(moment="2026-01-31T00:03:00+01:00").restored() == (moment, "moment-2026-01-30T23-03-00")
    assert RestoreMomentOptions(moment="2026-01-30T23:03:00", branch="b").restored() == (moment, "b")
    assert RestoreMomentOptions(moment="2026-01-30T23:03:00.25").restored()[1] == "moment-2026-01-30T23-03-00-250000"
    with pytest.raises(SpecError, match="moment is missing"):
        RestoreMomentOptions().restored()
