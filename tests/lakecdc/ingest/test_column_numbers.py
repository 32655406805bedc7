"""Places of numbered columns in a description that may use other names."""

from __future__ import annotations

import pytest

from lakecdc.ingest.column_numbers import places


@pytest.mark.parametrize(
    ("numbers", "requested", "expected"),
    [
        ({"a": 1, "b": 3, "x": None, "c": 4}, (4, 1), (3, 0)),
        ({"a": 1, "b": None}, (2,), ()),
        # only one column can be it, and none comes before a column of a lower number
        ({"a": 1, "b": 2, "c": 2}, (2,), ()),
        ({"a": 2, "b": 1}, (1,), ()),
        ({"a": 3, "b": 2, "c": 5}, (5,), (2,)),
        ({"a": 1}, (), ()),
    ],
)
def test_places_are_returned_only_if_certain(
    numbers: dict[str, int | None], requested: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert places(numbers, requested) == expected
