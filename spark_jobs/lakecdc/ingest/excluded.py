"""Remove the columns that a target excludes from messages for its quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakecdc.contract.target import Target
from lakecdc.ingest.envelopes.dms import OLD_PREFIX
from lakecdc.ingest.envelopes.json_values import UnreadableError, parse_json
from lakecdc.model.tokens import to_text

#: formats whose messages are the row, possibly in a ``payload`` beside its schema
_FLAT = ("json", "debezium-flat-json")
# members of an envelope that are a row or a list of rows
_IMAGES = ("before", "after", "data", "old", "before-image")
# members that may be the statement at the source
_STATEMENTS = ("sql", "query")
_ENVELOPES = ("payload", "source")
# members of envelopes: columns of these names are only removed from rows
_OWN = frozenset(
    (
        *("schema", "payload", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction", "type", "table", "database"),
        *("ts", "es", "id", "isDdl", "pkNames", "mysqlType", "sqlType", "xid", "commit", "gtid", "position"),
        *("primary_key", "primary_key_columns", "op_type", "op_ts", "current_ts", "pos", "tokens", "primary_keys"),
        *("metadata", "key", "value", "topic", "partition", "offset", "timestamp", "headers"),
    )
)


def value_without(target: Target, format_name: str) -> Callable[[bytes | None], bytes | None]:
    """Return a function that removes the excluded columns from a message's value; None for values other than JSON."""
    names = frozenset([*target.exclude_columns, *(f"{OLD_PREFIX}{name}" for name in target.exclude_columns)])
    cut = _row if format_name in _FLAT else _envelope
    return lambda value: _cut(value, cut, names)


def key_without(target: Target) -> Callable[[bytes | None], bytes | None]:
    """Return a function that removes the target's excluded columns from a message's key, if it is JSON."""
    names = frozenset(target.exclude_columns)
    return lambda key: _cut(key, _row, names) or key


def _cut(message: bytes | None, cut: Callable[[Any, frozenset[str]], Any], names: frozenset[str]) -> bytes | None:
    try:
        return None if message is None else to_text(cut(parse_json(bytes(message)), names)).encode()
    except (UnreadableError, RecursionError):
        return None


def _row(node: Any, names: frozenset[str]) -> Any:
    if not isinstance(node, dict):
        return node
    members = ((name, value) for name, value in node.items() if name not in names)
    return {name: _row(value, names) if name == "payload" else value for name, value in members}


def _envelope(node: Any, names: frozenset[str]) -> Any:
    if not isinstance(node, dict):
        return _anywhere(node, names)
    excluded = (names - _OWN).union(_STATEMENTS)
    return {name: _part(name, value, names) for name, value in node.items() if name not in excluded}


def _part(name: str, value: Any, names: frozenset[str]) -> Any:
    if name in _ENVELOPES:
        return _envelope(value, names)
    if name in _IMAGES:
        return [_row(row, names) for row in value] if type(value) is list else _row(value, names)
    return _anywhere(value, names)


def _anywhere(node: Any, names: frozenset[str]) -> Any:
    """Remove members of these names at any depth."""
    if isinstance(node, dict):
        return {name: _anywhere(value, names) for name, value in node.items() if name not in names}
    return [_anywhere(item, names) for item in node] if type(node) is list else node
