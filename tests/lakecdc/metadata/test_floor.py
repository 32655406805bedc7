"""The floor as stored in a table property."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.metadata.floor import Floor, read_floor, text_of
from lakecdc.metadata.names import EXPIRED_BELOW

MOMENT = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))


def test_an_encoded_floor_is_decoded() -> None:
    floor = Floor(3, "at", MOMENT)
    assert read_floor({EXPIRED_BELOW: floor.encode()}) == floor
    assert '"below": "2025-12-31T23:00:00+00:00"' in floor.encode()
    assert read_floor({}) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"column": "at", "field_id": 3, "below": "soon"}'])
def test_invalid_floors_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="Invalid table property"):
        read_floor({EXPIRED_BELOW: text}, "a.b")


def test_times_are_written_in_utc_in_the_form_of_each_type() -> None:
    assert text_of(MOMENT, "date") == "2025-12-31"
    assert text_of(MOMENT, "timestamp") == "2025-12-31T23:00:00"
    assert text_of(MOMENT, "timestamptz") == "2025-12-31T23:00:00+00:00"
    assert text_of(datetime(2026, 1, 1, tzinfo=UTC), "date") == "2026-01-01"
