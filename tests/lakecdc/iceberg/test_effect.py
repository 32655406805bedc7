"""A metadata change is recognized in a table that others change as well."""

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
    """Return the table's metadata with other values; None removes one."""
    metadata = {**BEFORE, **{key.replace("_", "-"): value for key, value in changes.items()}}
    return {key: value for key, value in metadata.items() if value is not None}


@pytest.mark.parametrize(
    "intended",
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
def test_a_change_is_in_effect_once_metadata_contains_it(intended: dict[str, Any]) -> None:
    assert not is_in_effect(BEFORE, intended, BEFORE)
    assert is_in_effect(BEFORE, intended, intended)
    assert is_in_effect(BEFORE, intended, intended | {"last-updated-ms": 2, "metadata-log": [1]})


def test_other_changes_do_not_matter() -> None:
    intended = changed(properties={"a": "2", "b": "1"}, snapshots=[{"snapshot-id": 2}])
    present = changed(properties={"a": "2", "c": "1"}, snapshots=[{"snapshot-id": 2}, {"snapshot-id": 3}])
    assert is_in_effect(BEFORE, intended, present)


def test_settings_changed_by_others_are_no_longer_in_effect() -> None:
    day = changed(refs={**BEFORE["refs"], "day": TAG})
    assert not is_in_effect(BEFORE, day, changed(refs={**BEFORE["refs"], "day": TAG | {"snapshot-id": 3}}))
