"""The columns of a new table, from its first messages: as the JVM's survey finds them, without its start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.formats.survey import merge_fields
from lakecdc.ingest.formats.values import Field

if TYPE_CHECKING:
    import pyarrow as pa

_LONG = 2**63


def fields(tables: Iterable[pa.Table], count: int) -> tuple[Field, ...] | None:
    """Columns of the row images of some messages.

    :param tables: messages with their ``value``.
    :param count: messages to look at.
    :return: None if they are not all plain row events of one table.
    """
    names: set[str] = set()
    seen: list[tuple[Field, ...]] = []
    try:
        for event in islice(_events(tables), count):
            if event.get("op") in ("r", "c", "u", "d"):
                source = event["source"]
                names.add(f"{source.get('schema') or source.get('db')}.{source['table']}")
                seen.append(_fields(event.get("after") or {}))
            elif "payload" in event:
                return None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return tuple(sorted(merge_fields(seen), key=lambda f: f.name)) if len(names) == 1 else None


def _events(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        for batch in table.to_batches(max_chunksize=1024):
            yield from (json.loads(value) for value in batch.column("value").to_pylist() if value is not None)


def _fields(image: dict[str, Any]) -> tuple[Field, ...]:
    return tuple(Field(name, _type(value)) for name, value in image.items() if value is not None)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_LONG <= value < _LONG else "double"
    return "double" if isinstance(value, float) else "string"
