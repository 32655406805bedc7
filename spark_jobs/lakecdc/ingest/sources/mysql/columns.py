"""What rows show of a column that is younger than they are: the log does not carry it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.formats.text_columns import TextColumn
from lakecdc.ingest.sources.database import defaults, full_load_needed
from lakecdc.ingest.sources.mysql.connect import query, quoted
from lakecdc.ingest.sources.mysql.texts import convert
from lakecdc.ingest.sources.mysql.types import BYTES

if TYPE_CHECKING:
    from lakecdc.ingest.change import Column
    from lakecdc.ingest.sources.mysql.catalog import SourceTable
    from lakecdc.ingest.sources.mysql.connect import Session


def checked_fills(
    session: Session, table: SourceTable, columns: Sequence[Column], added: Sequence[str]
) -> dict[str, Any]:
    """Return the value of each column in rows that are older than it, in the column's type; null is left out.

    :param columns: the target's.
    :param added: columns that the log saw being added.
    :raises InputError: such a column has no constant default, so that only the source knows its values, or has gone.
    """
    known = {column.name: column for column in table.columns}
    new = {name.lower() for name in added}
    gone = [name for name in added if name not in known and name not in table.target.exclude_columns]
    if gone:
        raise full_load_needed(
            f"The column {gone[0]!r} was added to {table.label} and has been renamed or dropped since, so that its "
            "default is not known",
            table.target.table,
        )
    for column in table.columns:
        if column.name.lower() in new and column.computed_default and column.name in {c.name for c in columns}:
            raise full_load_needed(
                f"The column {column.name!r} was added to {table.label} with a default that is computed",
                table.target.table,
            )
    wanted = [c for c in columns if c.name in known and not c.required and known[c.name].default is not None]
    if not wanted:
        return {}
    asked = [_as_text(str(known[c.name].default), known[c.name].base) for c in wanted]
    # one row, whatever the table holds
    rows = f"(SELECT 1) AS one LEFT JOIN {quoted(table.schema, table.name)} ON false"
    texts = query(session, f"SELECT {', '.join(asked)} FROM {rows}")[0]
    named = {c.name: None if text is None else str(text) for c, text in zip(wanted, texts, strict=True)}
    of = [TextColumn(c.name, known[c.name].base, c.type) for c in wanted]
    found = defaults(of, named, convert, table.target.table)
    return {name: value for name, value in found.items() if value is not None}


def with_fills(columns: Sequence[Column], fills: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns with what older rows show of them."""
    return tuple(replace(column, fill=fills.get(column.name)) for column in columns)


def _as_text(literal: str, base: str) -> str:
    if base in BYTES:
        return f"HEX({literal})"
    if base == "bit":
        return f"{literal} + 0"
    # see snapshot.expression
    return f"CAST({literal} * 1e0 AS CHAR)" if base == "float" else f"CAST({literal} AS CHAR)"
