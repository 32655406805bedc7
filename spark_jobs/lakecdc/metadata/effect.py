"""Check whether a metadata change took effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# fields that every commit changes, or that follow from others
_DERIVED = {"last-updated-ms", "metadata-log", "snapshot-log"}


def is_in_effect(before: Mapping[str, Any], intended: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Check whether a table has everything that a commit without new snapshots was to change.

    Another commit with the same result counts too, and unrelated changes by others do not matter.

    :param before: the table's metadata at the start of the commit, as JSON.
    :param intended: the metadata that the commit would produce.
    :param current: the metadata now.
    """
    changed = [key for key in {*before, *intended} - _DERIVED if before.get(key) != intended.get(key)]
    return all(_is_as_intended(key, before.get(key), intended.get(key), current.get(key)) for key in changed)


def _is_as_intended(key: str, before: Any, intended: Any, current: Any) -> bool:
    if key == "snapshots":
        return not (_ids(before) - _ids(intended)) & _ids(current)
    if isinstance(before or intended, dict):
        old, new, now = before or {}, intended or {}, current or {}
        return all(now.get(name) == new.get(name) for name in {*old, *new} if old.get(name) != new.get(name))
    return bool(current == intended)


def _ids(snapshots: Any) -> set[int]:
    return {snapshot["snapshot-id"] for snapshot in snapshots or ()}
