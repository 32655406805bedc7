"""Compare two JSON documents of Iceberg by what they mean."""

from __future__ import annotations

from typing import Any

# what Iceberg's specifications say of absent members
_DEFAULTS: dict[str, Any] = {
    "current-snapshot-id": -1,
    "schema-id": 0,
    "sequence-number": 0,
    "spec-id": 0,
    "stage-create": False,
}
# members with a type as text, in which spaces mean nothing
_TYPES = frozenset({"type", "element", "key", "value"})


def first_difference(given: Any, written: Any, path: str = "") -> str | None:
    """Return the path of the first difference between two documents; None if they mean the same.

    An absent member is the same as null, as an empty list or object, and as the default that the specification has.
    """
    if isinstance(given, dict) and isinstance(written, dict):
        members = {
            f"{path}.{name}" if path else name: (_meant(given, name), _meant(written, name))
            for name in (*given, *(name for name in written if name not in given))
        }
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        members = {f"{path}[{index}]": pair for index, pair in enumerate(zip(given, written, strict=True))}
    else:
        return None if type(given) is type(written) and given == written else path
    return next((where for at, pair in members.items() if (where := first_difference(*pair, at)) is not None), None)


def _meant(document: dict[str, Any], name: str) -> Any:
    value = document.get(name)
    if value in ([], {}) or value == _DEFAULTS.get(name, ()):
        return None
    return value.replace(" ", "") if name in _TYPES and isinstance(value, str) else value
