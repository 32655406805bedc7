"""Comparison of the lake with the source by DuckDB, row by row and column by column."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from demo.settings import CATALOG, Settings
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN

#: differences to list; all are counted
LISTED = 5
_OURS = (ORDER_COLUMN, TIME_COLUMN)


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one table.

    :param rows: rows of the Iceberg table.
    :param expected_rows: rows of the source.
    :param missing: rows only at the source.
    :param unexpected: rows only in the Iceberg table.
    :param differences: some of them in words, and columns with different types.
    """

    rows: int
    expected_rows: int
    missing: int = 0
    unexpected: int = 0
    differences: tuple[str, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """Return whether nothing differs."""
        return not (self.missing or self.unexpected or self.differences)


@dataclass(frozen=True)
class Place:
    """Where DuckDB finds a table.

    :param path: path of its current metadata file, or of a folder with ``metadata/version-hint.text``.
    :param storage: fsspec's file system for it; None if it is in a local folder.
    """

    path: str
    storage: Any = None


def place_of(settings: Settings, table: str) -> Place:
    """Return where a table is. In an object store its path is enough, without a catalog.

    :param table: ``namespace.name``.
    :raises LookupError: the table is not in the SQLite catalog.
    """
    if settings.s3 is None:
        return metadata_file(settings.catalog_file, table)
    import s3fs

    server = settings.s3
    account = {"key": server.access_key, "secret": server.secret_key, "endpoint_url": server.endpoint}
    path = f"{settings.catalog_properties['warehouse']}/{table.replace('.', '/')}"
    return Place(path, s3fs.S3FileSystem(**account, use_listings_cache=False))


def metadata_file(catalog_file: Path, table: str) -> Place:
    """Return a table's current metadata file from a SQLite catalog.

    :param table: ``namespace.name``.
    :raises LookupError: the table does not exist.
    """
    namespace, _, name = table.rpartition(".")
    query = (
        "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
    )
    with sqlite3.connect(f"file:{catalog_file}?mode=ro", uri=True) as connection:
        row = connection.execute(query, (CATALOG, namespace, name)).fetchone()
    if row is None:
        raise LookupError(f"Table {table} is not in the catalog {catalog_file}.")
    return Place(unquote(urlsplit(row[0]).path))


def compare(table: Place, expected: Path) -> Comparison:
    """Compare an Iceberg table with the source's rows.

    Types must be equal, not just convertible; rows are compared with their count, so that duplicates count.

    :param expected: Parquet file of the source's rows.
    """
    lake, source = f"iceberg_scan('{table.path}')", f"'{expected}'"
    with open_duckdb(table.storage) as connection:
        rows, expected_rows = (_number(connection, f"SELECT count(*) FROM {place}") for place in (lake, source))
        actual, expected_types = _types(connection, lake), _types(connection, source)
        differences = tuple(
            f"column {name}: {actual.get(name, 'missing')} instead of {expected_types.get(name, 'nothing')}"
            for name in [*expected_types, *(set(actual) - set(expected_types))]
            if actual.get(name) != expected_types.get(name)
        )
        if differences:
            return Comparison(rows, expected_rows, differences=differences)
        names = ", ".join(f'"{name}"' for name in expected_types)
        missing = _only_in(connection, source, lake, names)
        unexpected = _only_in(connection, lake, source, names)
    listed = [f"only at the source: {row}" for row in missing[1]] + [
        f"only in the lake: {row}" for row in unexpected[1]
    ]
    return Comparison(rows, expected_rows, missing[0], unexpected[0], tuple(listed))


def open_duckdb(storage: Any = None) -> Any:
    """Open DuckDB with its Iceberg extension, both from wheels.

    :param storage: fsspec's file system to register.
    """
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone = 'UTC'")
    for module in (duckdb_extension_avro, duckdb_extension_iceberg):
        extension = next(Path(module.__path__[0]).rglob("*.duckdb_extension"))
        connection.execute(f"LOAD '{extension}'")
    if storage is not None:
        connection.register_filesystem(storage)
    return connection


def _types(connection: Any, place: str) -> dict[str, str]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {place}").fetchall()
    return {row[0]: row[1] for row in rows if row[0] not in _OURS}


def _only_in(connection: Any, this: str, other: str, names: str) -> tuple[int, list[str]]:
    rest = f"SELECT {names} FROM {this} EXCEPT ALL SELECT {names} FROM {other}"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE rest AS {rest}")
    listed = connection.execute(f"SELECT * FROM rest ORDER BY ALL LIMIT {LISTED}").fetchall()
    return _number(connection, "SELECT count(*) FROM rest"), [_short(row) for row in listed]


def _number(connection: Any, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _short(row: tuple[Any, ...]) -> str:
    return "(" + ", ".join(text if len(text := str(value)) <= 40 else f"{text[:37]}..." for value in row) + ")"
