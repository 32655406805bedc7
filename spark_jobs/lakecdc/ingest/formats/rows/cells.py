"""Cells and what becomes of them: a cell's value in the type of its column, and whether it fits.

As with ``formats.values``: what does not fit is found, never cut, rounded or made null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.widening import is_wider
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.ingest.formats.messages import json
from lakecdc.ingest.formats.rows.text_sql import calendar, exact_decimal, more_than_a_day, strange_fraction
from lakecdc.sql import literal, quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_INTEGERS, "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_NESTED = re.compile(r"(struct|array|map)<")
#: SQL of the problem of a record whose bytes are no text, or null
NO_TEXT = "CASE WHEN NOT is_valid_utf8(CAST(value AS string)) THEN 'encoding: the record is no UTF-8' END"
# what Iceberg has no type for
_STORED = {"tinyint": "int", "smallint": "int", "void": "string"}


@dataclass(frozen=True)
class Cells:
    """Records whose columns are told apart.

    :param frame: see the package.
    :param columns: the members of ``cells`` with their types in the files.
    """

    frame: DataFrame
    columns: tuple[Column, ...]


def with_cells(messages: DataFrame, names: Sequence[str], values: Sequence[str], problem: str) -> Cells:
    """Cells of text.

    :param names: the columns.
    :param values: SQL of each one's text.
    :param problem: SQL.
    """
    members = ", ".join(f"{sql} AS {quoted_column(name)}" for name, sql in zip(names, values, strict=True))
    found = f"coalesce({NO_TEXT}, {problem}) AS problem"
    frame = messages.selectExpr(*MESSAGE, "arrival", f"struct({members}) AS cells", found)
    return Cells(frame, tuple(Column(name, "string") for name in names))


def stored_type(cell: Column, chosen: str | None, known: str | None) -> str:
    """Return the type that a cell's column is to have.

    :param chosen: the target's override.
    :param known: the table's type.
    """
    own = _STORED.get(cell.type, cell.type)
    if chosen or known is None:
        return chosen or own
    return own if is_wider(known, own) or _NESTED.match(own) and known != "string" else known


def value(cell: Column, sql_type: str, timestamp_format: str | None = None) -> str:
    """Return SQL of a cell's value in a type; null where it is null or does not fit."""
    source = f"cells.{quoted_column(cell.name)}"
    if cell.type == sql_type:
        return source
    if cell.type == "string":
        return from_text(source, sql_type, timestamp_format)
    if sql_type == "string":
        return _to_text(source, cell.type)
    if _is_number(cell.type) and _is_number(sql_type) or (cell.type in _TIMES and sql_type in _TIMES):
        return f"try_cast({source} AS {sql_type})"
    return from_text(_to_text(source, cell.type), sql_type, timestamp_format)


def misfit(cell: Column, sql_type: str, found: str, pattern: str | None = None) -> str | None:
    """Return SQL that is true for a cell that does not fit a type; None if every value does.

    :param found: SQL of the value.
    :param pattern: how times are written in text; default: ISO-8601.
    """
    if sql_type in ("string", cell.type):
        return None
    source = f"cells.{quoted_column(cell.name)}"
    there = f"trim({source}) != ''" if cell.type == "string" else f"{source} IS NOT NULL"
    lost = f"({there} AND {found} IS NULL)"
    if cell.type == "string" and sql_type in ("float", "double"):
        return f"({lost} OR {strange_fraction(source, found)})"
    if cell.type == "string" and sql_type == "date" and not pattern:
        return f"({lost} OR {more_than_a_day(f'trim({source})')})"
    if cell.type in _TIMES and sql_type == "date":
        return f"({lost} OR coalesce(CAST({found} AS {cell.type}) != {source}, false))"
    if _is_number(cell.type) and _is_number(sql_type) and sql_type != "float":
        return f"({lost} OR coalesce(try_cast({found} AS {cell.type}) != {source}, false))"
    return lost


def from_text(text: str, sql_type: str, timestamp_format: str | None = None) -> str:
    """Return SQL of a text's value in a type; an empty text is null, and so is one that does not fit."""
    if sql_type == "string":
        return text
    trimmed = f"nullif(trim({text}), '')"
    if sql_type == "binary":
        return f"try_to_binary({trimmed}, 'base64')"
    if sql_type in _TIMES and timestamp_format:
        return f"try_cast(try_to_timestamp({trimmed}, {literal(timestamp_format)}) AS {sql_type})"
    if sql_type == "variant" or _NESTED.match(sql_type):
        return f"try_variant_get({json(trimmed)}, '$', {literal(sql_type)})"
    if _DECIMAL.fullmatch(sql_type):
        return exact_decimal(trimmed, sql_type)
    if sql_type in _TIMES:
        return calendar(trimmed, sql_type)
    return f"try_cast({trimmed} AS {sql_type})"


def _to_text(source: str, cell_type: str) -> str:
    if _NESTED.match(cell_type) or cell_type == "variant":
        return f"to_json({source})"
    # Spark's base64 has a line break every 76 characters
    return rf"replace(base64({source}), '\r\n')" if cell_type == "binary" else f"CAST({source} AS string)"


def _is_number(sql_type: str) -> bool:
    return sql_type in _NUMBERS or bool(_DECIMAL.fullmatch(sql_type))
