"""Find mentions of keys in what jobs write about a table: specs, reports, dry-run lists, the audit.

These contain row values where ``report_values`` or a user asked for them. A number is a value, not a count, if it is
named after the column, or is written as values are in a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakecdc.runtime import documents

if TYPE_CHECKING:
    import pyarrow as pa

#: suffixes of documents
DOCUMENTS = (".json", ".jsonl")
_WORD = re.compile(r"\w+")
# parts of a file name
_PART, _DIGITS = re.compile(r"[^\W_]+"), re.compile(r"\d+")
_INTEGER, _DAY = re.compile(r"-?\d+(?:\.0*)?"), re.compile(r"\d{4}-\d\d-\d\d")
_DAY_MICROS = 86_400_000_000
# names of cursor values in ingestion reports
_CURSORS = ("through", "last", "read_from", "read_to")
# text before a value, but not before a count
_BEFORE_VALUE = re.compile(r"""[=<>:('"\[]\s*\Z""")
_COUNTED = re.compile(r"\s+[a-z]")


class _Number(str):
    """A number as written in a JSON document."""


class Mentions:
    """Key values to search for in texts about some tables; with ``by_cursor`` also in cursors of ingestion reports."""

    def __init__(
        self, columns: Sequence[str], keys: Iterable[Sequence[str]], tables: Collection[str], *, by_cursor: bool = False
    ) -> None:
        self._cursors = _CURSORS if by_cursor else ()
        self._columns, self._keys, self.tables = tuple(columns), {tuple(key) for key in keys}, frozenset(tables)
        leading = {key[0] for key in self._keys}
        self._words = {value for value in leading if _WORD.fullmatch(value)}
        self._others = leading - self._words

    @cached_property
    def integers(self) -> frozenset[int]:
        """Return key values as integers, as cursors have them: dates as days and microseconds since 1970."""
        numbers = set[int]()
        for value in {value for key in self._keys for value in key}:
            if _INTEGER.fullmatch(value):
                numbers.add(int(value.partition(".")[0]))
            elif _DAY.fullmatch(value):
                days = (date.fromisoformat(value) - date(1970, 1, 1)).days
                numbers |= {days, days * _DAY_MICROS}
        return frozenset(numbers)

    def in_settings(self, entries: Mapping[str, str]) -> bool:
        """Check whether properties or a summary mention a key; a value that is only a number is a count."""
        return self.in_value(
            {name: _Number(text) if _INTEGER.fullmatch(text) else text for name, text in entries.items()}
        )

    def in_document(self, location: str, content: bytes) -> bool:
        """Check whether a document about one of the tables mentions a key; other tables may have the same values."""
        text = content.decode(errors="replace")
        whole = _parsed(text)
        parts = [whole] if whole is not None else [_parsed(line) or line for line in text.splitlines()]
        is_list = any(f"-{quote(table, safe='').replace('%', '=')}.jsonl" in location for table in self.tables)
        return any((is_list or self._is_about(part)) and self.in_value(part) for part in map(self._own, parts))

    def in_value(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            named = [value[column] for column in self._columns if column in value]
            if len(named) == len(self._columns) and tuple(map(str, named)) in self._keys:
                return True
            if any(self._is_cursor(value[name]) for name in self._cursors if name in value):
                return True
            return any(self.in_value(each) for pair in value.items() for each in pair)
        if isinstance(value, list):
            return any(map(self.in_value, value))
        return isinstance(value, str) and not isinstance(value, _Number) and self.in_text(value)

    def in_text(self, text: str) -> bool:
        parsed = _parsed(text)
        if parsed is not None:
            return self.in_value(parsed)
        leading = self._words & set(_WORD.findall(text)) | {value for value in self._others if value in text}
        return bool(leading) and any(
            all(_is_value_in(value, text) for value in key) for key in self._keys if key[0] in leading
        )

    def without_keys(self, name: str) -> str:
        """Return the name of a file, or a placeholder if part of it may be a key value."""
        parts = {*_PART.findall(name.casefold()), *_DIGITS.findall(name)}
        values = {value.casefold() for key in self._keys for value in key}
        if parts & values or any(not value.isalnum() and value in name.casefold() for value in values):
            return "a file whose name may contain a key"
        return name

    def _is_cursor(self, value: Any) -> bool:
        texts = map(str, value if isinstance(value, list) else [value])
        return any(_INTEGER.fullmatch(text) and int(text.partition(".")[0]) in self.integers for text in texts)

    def _own(self, part: Any) -> Any:
        """Return a report without its entries for other tables."""
        if not isinstance(part, dict) or not isinstance(part.get("tables"), list):
            return part
        own = [each for each in part["tables"] if not isinstance(each, dict) or each.get("table") in self.tables]
        return {**part, "tables": own}

    def _is_about(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            return any(self._is_about(each) for pair in value.items() for each in pair)
        if isinstance(value, list):
            return any(map(self._is_about, value))
        return value in self.tables


def documents_with_keys(uri: str, mentions: Mentions) -> tuple[int, list[str]]:
    """Search job documents for keys; return their number, and the URIs of those that mention a key."""
    count, matching = 0, list[str]()
    for location, content in documents.read_below(uri, DOCUMENTS):
        count += 1
        if mentions.in_document(location, content):
            matching.append(location)
    return count, matching


def rows_with_mentions(batches: Iterable[pa.RecordBatch], mentions: Mentions) -> Iterator[pa.RecordBatch]:
    """Yield the ids of rows that mention a key, from batches with ``row_id`` and text columns."""
    import pyarrow as pa

    for batch in batches:
        texts = [name for name in batch.schema.names if name != "row_id"]
        matching = [any(mentions.in_text(row[name]) for name in texts if row[name]) for row in batch.to_pylist()]
        yield batch.select(["row_id"]).filter(pa.array(matching, pa.bool_()))


def _parsed(text: str) -> Any:
    """Parse a JSON object or list; return None for other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text, parse_int=_Number, parse_float=_Number)
    except ValueError:
        return None


def _is_value_in(value: str, text: str) -> bool:
    # a number may be part of a timestamp, a version or another number
    around = r"(?<![\w.])(?<!\d[-:])", r"(?!\w|[.:-]\d)"
    if not value.lstrip("-").isdigit():
        return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
    matches = re.finditer(f"{around[0]}{re.escape(value)}{around[1]}", text)
    return any(_BEFORE_VALUE.search(text[: each.start()]) or not _COUNTED.match(text, each.end()) for each in matches)
