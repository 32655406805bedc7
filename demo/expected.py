"""Export of the source's final state to Parquet files, from Postgres' text with explicit types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.shop import Table
from demo.source import Source


def export(source: Source, table: Table, folder: Path) -> int:
    """Write ``<folder>/<table>.parquet`` and return the number of rows.

    :param table: defines columns and types of the file.
    """
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    text, target = folder / f"{table.name}.csv", folder / f"{table.name}.parquet"
    with source.connect() as session, text.open("wb") as file:
        # UTC, and all digits of floats
        session.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 3")
        columns = ", ".join(f'"{column}"' for column in table.columns)
        statement: Any = f"COPY (SELECT {columns} FROM {table.full_name}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        with session.cursor().copy(statement) as copy:
            for data in copy:
                file.write(data)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({typed_rows(text, table.columns)}) TO '{target}' (FORMAT parquet)")
        row = connection.execute(f"SELECT count(*) FROM '{target}'").fetchone()
    text.unlink()
    assert row is not None
    return int(row[0])


def typed_rows(text: Path, columns: Mapping[str, str]) -> str:
    """Return a DuckDB query that casts every column of a CSV file to its type; invalid values stop it.

    With ``FORCE_QUOTE`` only nulls are unquoted.
    """
    names = ", ".join(f"'{name}': 'VARCHAR'" for name in columns)
    casts = ", ".join(f'{_cast(name, kind)} AS "{name}"' for name, kind in columns.items())
    return (
        f"SELECT {casts} FROM read_csv('{text}', header = false, columns = {{{names}}}, delim = ',', quote = '\"', "
        "escape = '\"', allow_quoted_nulls = false, nullstr = '', max_line_size = 10000000)"
    )


def _cast(name: str, kind: str) -> str:
    if kind == "BLOB":
        # Postgres writes \\x and hexadecimal digits
        return f'unhex(substr("{name}", 3))'
    return f'CAST("{name}" AS {kind})'
