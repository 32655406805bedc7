"""Readers that share no code with Spark, to check what Spark wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def duckdb_connection() -> Any:
    """A DuckDB connection with the Iceberg extension loaded from its PyPI wheel (no download)."""
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone='UTC'")
    # DuckDB 1.5.5 takes a vector from the beginning of the cached range that holds it, which can be another vector of
    # the same Puffin file (mended in duckdb-iceberg by 8b2e25f4)
    connection.execute("SET enable_external_file_cache = false")
    for module in (duckdb_extension_avro, duckdb_extension_iceberg):
        extension = next(Path(module.__path__[0]).rglob("*.duckdb_extension"))
        connection.execute(f"LOAD '{extension}'")
    return connection


def duckdb_rows(
    metadata_location: str, columns: str = "*", snapshot_id: int | None = None, storage: Any = None
) -> list[tuple[Any, ...]]:
    """All rows of the table whose metadata file this is, as of a snapshot if one is named.

    :param storage: fsspec's file system of the table; None if it is in a local folder.
    """
    at = f", snapshot_from_id={snapshot_id}" if snapshot_id is not None else ""
    path = metadata_location if storage else unquote(urlsplit(metadata_location).path)
    with duckdb_connection() as connection:
        if storage:
            connection.register_filesystem(storage)
        return connection.execute(f"SELECT {columns} FROM iceberg_scan('{path}'{at})").fetchall()
