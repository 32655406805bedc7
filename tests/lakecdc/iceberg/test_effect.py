"""A metadata change is found again in a table that others change too."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.iceberg.lost_answers import is_in_effect

TAG = {"snapshot-id": 1, "type": "tag"}
BEFORE: dict[str, Any] = {
    "last-updated-ms": 1,
    "metadata-log": [],
    "properties": {"a": "1", "b": "1"},
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "old": TAG},
    "snapshots": [{"snapshot-id": 1}, {"snapshot-id": 2}],
    "current-schema-id": 0,
}


def changed(**changes: Any) -> dict[str, Any]:
    """The table with other values; None removes one."""
    found = {**BEFORE, **{key.replace("_", "-"): value for key, value in changes.items()}}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize(
    "wanted",
    [
        changed(properties={"a": "2", "b": "1"}),
        changed(properties={"b": "1"}),
        changed(properties=None),
        changed(refs={**BEFORE["refs"], "day": TAG}),
        changed(refs={"main": BEFORE["refs"]["main"]}),
        changed(snapshots=[{"snapshot-id": 2}]),
        changed(current_schema_id=1),
    ],
)
def test_a_change_is_in_effect_once_it_is_there(wanted: dict[str, Any]) -> None:
    assert not is_in_effect(BEFORE, wanted, BEFORE)
    assert is_in_effect(BEFORE, wanted, wanted)
    assert is_in_effect(BEFORE, wanted, wanted | {"last-updated-ms": 2, "metadata-log": [1]})


def test_what_others_have_changed_beside_it_does_not_matter() -> None:
    wanted = changed(properties={"a": "2", "b": "1"}, snapshots=[{"snapshot-id": 2}])
    found = changed(properties={"a": "2", "c": "1"}, snapshots=[{"snapshot-id": 2}, {"snapshot-id": 3}])
    assert is_in_effect(BEFORE, wanted, found)


def test_settings_changed_by_others_are_no_longer_in_effect() -> None:
    day = changed(refs={**BEFORE["refs"], "day": TAG})
    assert not is_in_effect(BEFORE, day, changed(refs={**BEFORE["refs"], "day": TAG | {"snapshot-id": 3}}))
