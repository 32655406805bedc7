"""Values of JSON as tokens for column parsers: None, bool, int, str, :class:`Number` or :class:`Nested`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# a thousand levels, with room for each level's calls
_DEEP_CALLS = 20_000

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Number(str):
    """The text of a bare JSON number; integers may also be int."""

    __slots__ = ()


class Nested(str):
    """The text of a JSON object or array, without white space between its parts."""

    __slots__ = ()


class MisfitError(ValueError):
    """A value that its column cannot hold exactly."""


def as_token(value: Any) -> Any:
    return Nested(to_text(value)) if isinstance(value, list | dict) else value


def to_text(value: Any) -> str:
    """Return compact JSON of a parsed value, with numbers as they were written."""
    try:
        return _text(value)
    except RecursionError:
        with deep_calls():
            return _text(value)


@contextmanager
def deep_calls() -> Iterator[None]:
    """Allow recursion for values that are nested more deeply than usual."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP_CALLS))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _text(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        members = (f"{_encode(name)}:{_text(each)}" for name, each in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return _encode(value)
