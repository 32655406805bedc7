"""Whether a change of a table's metadata is to be seen in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# what every commit changes, or follows from the rest
_DERIVED = {"last-updated-ms", "metadata-log", "snapshot-log"}


def is_in_effect(before: Mapping[str, Any], wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Tell whether a table is as a commit without new snapshots wanted it, in all that the commit was to change.

    Another commit that came to the same is as good, and what others have changed beside it does not matter.

    :param before: the table's metadata that the commit began with, as JSON.
    :param wanted: what it was to become.
    :param found: what it is now.
    """
    changed = [key for key in {*before, *wanted} - _DERIVED if before.get(key) != wanted.get(key)]
    return all(_as_wanted(key, before.get(key), wanted.get(key), found.get(key)) for key in changed)


def _as_wanted(key: str, before: Any, wanted: Any, found: Any) -> bool:
    if key == "snapshots":
        return not (_ids(before) - _ids(wanted)) & _ids(found)
    if isinstance(before or wanted, dict):
        old, new, now = before or {}, wanted or {}, found or {}
        return all(now.get(name) == new.get(name) for name in {*old, *new} if old.get(name) != new.get(name))
    return bool(found == wanted)


def _ids(snapshots: Any) -> set[int]:
    return {snapshot["snapshot-id"] for snapshot in snapshots or ()}
