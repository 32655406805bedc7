"""Inspect a few records before a batch is read: their size, and whether a key stays in its partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from lakecdc.ingest.sources.kafka.cluster import Headers, Record

KeyNames = Callable[[bytes | None, Headers], set[str] | None]
OTHER_KEY = "the records are not keyed by the table's key columns, so that a key may lie in any partition"


def mean_bytes(records: Sequence[Record]) -> float:
    """Return the mean size of key and value; 0 without records."""
    sizes = [len(key or b"") + len(value or b"") for key, value, _ in records]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _json_names(key: bytes | None, headers: Headers = None) -> set[str] | None:
    """Return the names of the members of a JSON key, with or without its schema."""
    document = _json(key)
    if isinstance(document, dict) and set(document) == {"schema", "payload"}:
        document = document["payload"]
    return set(document) if isinstance(document, dict) else None


def _is_row(value: bytes | None) -> bool:
    """Whether a record without a key is about a row, unlike a TRUNCATE or a logical message."""
    document = _json(value)
    if isinstance(document, dict) and isinstance(document.get("payload"), dict):
        document = document["payload"]
    return not (isinstance(document, dict) and document.get("op") in ("t", "m"))


def _json(text: bytes | None) -> Any:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None


def is_keyed_by(columns: Sequence[str], records: Sequence[Record], key_names: KeyNames = _json_names) -> bool:
    """Check whether each record's key is an object of exactly these columns; a TRUNCATE needs none.

    :param columns: if empty, those of the first record.
    :param key_names: returns the columns in a key, from key and headers; None if it has none.
    """
    found = {
        frozenset(key_names(key, headers) or ()) for key, value, headers in records if key is not None or _is_row(value)
    }
    return found <= {frozenset(columns)} if columns else len(found) < 2 and frozenset() not in found
