"""What a few records tell before a batch is read: how large they are, and whether a key stays in its partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from lakecdc.ingest.sources.kafka.cluster import Headers, Record

KeyNames = Callable[[bytes | None, Headers], set[str] | None]
OTHER_KEY = "the records are not keyed by the table's key columns, so that a key may lie in any partition"


class Samples:
    """Records from the beginning of what is to be read.

    :param records: key, value and headers of each.
    :param key_names: names of the columns in a key, from key and headers, None if these tell none; default: those of
        JSON.
    """

    def __init__(self, records: Sequence[Record], key_names: KeyNames | None = None) -> None:
        self._records, self._names = records, key_names or json_names

    @property
    def mean_bytes(self) -> float:
        """Mean size of key and value; 0 without records."""
        sizes = [len(key or b"") + len(value or b"") for key, value, _ in self._records]
        return sum(sizes) / len(sizes) if sizes else 0.0

    def keyed_by(self, columns: Sequence[str]) -> bool:
        """Tell whether each record's key is an object of just these columns; a TRUNCATE needs none.

        :param columns: if there are none, those of the records' own keys.
        """
        found = {
            frozenset(self._names(key, headers) or ())
            for key, value, headers in self._records
            if key is not None or _is_row(value)
        }
        return found <= {frozenset(columns)} if columns else len(found) < 2 and frozenset() not in found


def json_names(key: bytes | None, headers: Headers = None) -> set[str] | None:
    """Names of the members of a key in JSON, with or without its schema."""
    document = _json(key)
    if isinstance(document, dict) and set(document) == {"schema", "payload"}:
        document = document["payload"]
    return set(document) if isinstance(document, dict) else None


def _is_row(value: bytes | None) -> bool:
    """Whether a record without a key is about a row, as far as can be seen."""
    document = _json(value)
    if isinstance(document, dict) and isinstance(document.get("payload"), dict):
        document = document["payload"]
    return not (isinstance(document, dict) and document.get("op") in ("t", "m"))


def _json(text: bytes | None) -> Any:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None
