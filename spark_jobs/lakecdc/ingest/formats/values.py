"""Describe the columns of a format, and find placeholders of unchanged values."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakecdc.iceberg.widening import common
from lakecdc.ingest.change import Column
from lakecdc.ingest.envelopes.message import whole
from lakecdc.model.columns import DECIMAL, ColumnType
from lakecdc.model.tokens import Number, as_token

# types whose values a database stores out of line, so an update's log may lack them
_LARGE = re.compile(r"string|binary|decimal")


@dataclass(frozen=True)
class Field:
    """A column of a format.

    :param type: Spark SQL type of the result; this and the others are those of its :attr:`column_type`.
    """

    name: str
    type: str
    encoding: str = "plain"
    scale: int = 0
    names: tuple[str, ...] = ()

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)

    @property
    def column_type(self) -> ColumnType:
        return ColumnType(self.type, self.encoding, self.scale, self.names)

    @property
    def is_large(self) -> bool:
        """Check whether a database may leave the value out of an update, and a placeholder stands for it."""
        return bool(_LARGE.match(self.type))

    def with_type(self, sql_type: str) -> Field:
        """Return the same values in another type."""
        if self.names and sql_type != "string":
            # the values are numbers already
            return Field(self.name, sql_type)
        plain_binary = sql_type == "binary" and self.encoding == "plain"
        return replace(self, type=sql_type, encoding="base64" if plain_binary else self.encoding)

    def with_encoding(self, encoding: str) -> Field:
        """Return the column with another encoding of its values; the type has the scale."""
        decimal = DECIMAL.match(self.type)
        return replace(self, encoding=encoding, scale=int(decimal[2]) if decimal else 0)


def placeholder_shapes(unavailable_value: str) -> tuple[str, ...]:
    """Return the JSON texts of Debezium's placeholder in columns of different types.

    Source: Debezium's ``UnchangedToastedPlaceholder``: text, bytes, arrays of text, bytes, integers and uuid, hstore.
    """
    raw = unavailable_value.encode()
    if unavailable_value.startswith("hex:"):
        raw = bytes.fromhex(unavailable_value[4:])
    text = raw.decode("utf-8", "replace")
    encoded = b64encode(raw).decode()
    named = uuid.UUID(bytes=hashlib.md5(raw).digest(), version=3)
    shapes: list[object] = [[text], [encoded], list(raw), [str(named)], {text: text}]
    written = [json.dumps(shape, separators=(",", ":"), ensure_ascii=False) for shape in shapes]
    return (text, encoded, raw.hex(), *written, f'{{"scale":0,"value":"{encoded}"}}')


def find_placeholders(values: Sequence[Any], shapes: frozenset[str]) -> list[int]:
    """Return the places of parsed values that stand for "unchanged", by the texts of :func:`placeholder_shapes`."""
    try:
        if shapes.isdisjoint(values):
            return []
        return [place for place, value in enumerate(values) if value in shapes]
    except TypeError:
        return [place for place, value in enumerate(map(as_token, values)) if value in shapes]


def json_type(value: Any) -> str:
    """Return the Spark SQL type of a parsed JSON value without a schema."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | Number):
        return "double" if whole(str(value)) is None else "bigint"
    return "string"


def merge_fields(seen: Iterable[tuple[Field, ...]]) -> tuple[Field, ...]:
    """Return columns that fit the values of several lists of columns, with the encoding in the first list."""
    merged: dict[str, Field] = {}
    for one in (f for fields in seen for f in fields):
        known = merged.setdefault(one.name, one)
        if known.type != one.type:
            merged[one.name] = known.with_type(common(known.type, one.type))
    return tuple(merged.values())
