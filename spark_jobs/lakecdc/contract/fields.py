"""Parse JSON objects into frozen dataclasses strictly: unknown keys and wrong types are errors."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from lakecdc.contract.errors import SpecError

T = TypeVar("T")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?P<number>[1-9][0-9]{0,8})(?P<unit>[smhd])")


def parse(cls: type[T], document: Any, where: str) -> T:
    """Build a dataclass from a JSON object.

    :param cls: a dataclass whose annotations are JSON types, Literals, unions, tuples or nested dataclasses.
    :param document: any JSON value.
    :param where: its path in the spec, for messages, such as ``options`` or ``target[0]``.
    :raises SpecError: an unknown key, a missing key or a value of the wrong type.
    """
    if not isinstance(document, Mapping):
        raise SpecError(f"{where} must be an object, not {_type_name(document)}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    refuse_unknown(document, fields, where)
    hints = typing.get_type_hints(cls)
    values = {}
    for name, field in fields.items():
        if name in document:
            values[name] = coerce(hints[name], document[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SpecError(f"{where}.{name} is missing.", hint=f"Add it; known keys are {', '.join(fields)}.")
    return cls(**values)


def refuse_unknown(document: Mapping[str, Any], known: Mapping[str, Any] | set[str], where: str) -> None:
    """Raise a :class:`SpecError` for the first unknown key, with the nearest known one as a suggestion."""
    for key in document:
        if key not in known:
            suggestion = nearest(str(key), known) or f"Known keys are {', '.join(sorted(known))}."
            raise SpecError(f"Unknown key {key!r} in {where}.", hint=suggestion, key=key)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Suggest the known name that is most like an unknown one; None if none is like it."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"Did you mean {near[0]!r}?" if near else None


def check_zone(name: str, where: str) -> None:
    """Raise a :class:`SpecError` if a time zone does not exist; ``where`` is its path in the spec."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise SpecError(
            f"{where} is {name!r}, which is not a time zone.", hint='Use a name such as "UTC" or "Europe/Berlin".'
        ) from error


def parse_moment(text: str, where: str) -> datetime:
    """Parse an ISO-8601 time, in UTC without an offset; ``where`` is its path in the spec, for the error."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(
            f"{where} is {text!r}, which is not an ISO-8601 time.",
            hint='Use the form "2026-01-31T00:00:00+00:00"; without an offset it is UTC.',
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_duration(text: str, where: str) -> float:
    """Parse a duration such as ``30m`` to seconds; ``where`` is its path in the spec, for the error."""
    if (parts := _DURATION.fullmatch(text)) is None:
        raise SpecError(
            f"{where} is {text!r}, which is not a duration.",
            hint='Use a whole number above 0 and a unit: s, m, h or d, such as "30m".',
        )
    return float(int(parts["number"]) * _UNITS[parts["unit"]])


def check_least(options: object, where: str, **least: float) -> None:
    """Raise a :class:`SpecError` for an option below its lowest value; ``where`` is the path of the options."""
    for name, lowest in least.items():
        value = getattr(options, name)
        if not value >= lowest:
            raise SpecError(f"{where}.{name} is {value}, not {lowest} or more.")


def coerce(hint: Any, value: Any, where: str) -> Any:
    """Check a value against a type, convert lists to tuples and objects to dataclasses, or raise :class:`SpecError`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is typing.Literal:
        if value not in args:
            raise SpecError(f"{where} is {value!r}.", hint=f"It must be one of {', '.join(map(repr, args))}.")
        return value
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(args, value, where)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise SpecError(f"{where} must be a list, not {_type_name(value)}.")
        return tuple(coerce(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin in (dict, Mapping) or hint in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise SpecError(f"{where} must be an object, not {_type_name(value)}.")
        return {k: coerce(args[1], v, f"{where}.{k}") for k, v in value.items()} if args else dict(value)
    if dataclasses.is_dataclass(hint):
        return parse(hint, value, where)  # type: ignore[arg-type]
    return _coerce_scalar(hint, value, where)


def _coerce_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    if kinds := _by_type(args):
        return _coerce_kind(kinds, value, where)
    errors = []
    for arg in args:
        if arg is not type(None):
            try:
                return coerce(arg, value, where)
            except SpecError as error:
                errors.append(error)
    raise errors[-1]


def _by_type(args: tuple[Any, ...]) -> dict[str, Any]:
    """Return dataclasses by the value of their field ``type``; none without such a field."""
    kinds = [arg for arg in args if dataclasses.is_dataclass(arg)]
    return {f.default: kind for kind in kinds for f in dataclasses.fields(kind) if f.name == "type"}  # type: ignore[misc]


def _coerce_kind(kinds: dict[str, Any], value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise SpecError(f"{where} must be an object, not {_type_name(value)}.")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        raise SpecError(f"{where}.type is {kind!r}.", hint=f"It must be one of {', '.join(kinds)}.")
    return parse(kinds[kind], value, where)


def _coerce_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint in (int, float) and isinstance(value, bool)):
        raise SpecError(f"{where} must be {hint.__name__}, not {_type_name(value)}.")
    return value


def _type_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__
