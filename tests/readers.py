"""Readers that share no code with Spark, to check Spark's output."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from pyiceberg import types

if TYPE_CHECKING:
    from tests.conftest import Lake

Rows = list[tuple[Any, ...]]
Answer = Sequence[Sequence[Any]]


class Read(Protocol):
    """Read a table: a row per line, values in the order of the columns."""

    def __call__(self, name: str, columns: str = "*") -> Answer:
        """Read all rows.

        :param columns: expressions in the reader's SQL; pyiceberg has none.
        """


def duckdb_connection() -> Any:
    """Return a DuckDB connection with the Iceberg extension loaded from its PyPI wheel (no download)."""
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone='UTC'")
    # DuckDB 1.5.5 reads a vector from the beginning of the cached range that contains it, which can be another vector
    # of the same Puffin file (fixed in duckdb-iceberg by 8b2e25f4)
    connection.execute("SET enable_external_file_cache = false")
    for module in (duckdb_extension_avro, duckdb_extension_iceberg):
        extension = next(Path(module.__path__[0]).rglob("*.duckdb_extension"))
        connection.execute(f"LOAD '{extension}'")
    return connection


def duckdb_rows(
    metadata_location: str, columns: str = "*", snapshot_id: int | None = None, storage: Any = None
) -> Rows:
    """Return all rows of the table with this metadata file, as of a snapshot if one is named.

    :param storage: fsspec's file system of the table; None for a local folder.
    """
    at = f", snapshot_from_id={snapshot_id}" if snapshot_id is not None else ""
    path = metadata_location if storage else unquote(urlsplit(metadata_location).path)
    with duckdb_connection() as connection:
        if storage:
            connection.register_filesystem(storage)
        return connection.execute(f"SELECT {columns} FROM iceberg_scan('{path}'{at})").fetchall()


def readers_at_hand(lake: Lake) -> dict[str, Read]:
    """Return the readers that need no server, by their names in settings."""

    def spark(name: str, columns: str = "*") -> Answer:
        return lake.sql(f"SELECT {columns} FROM lake.{name}").collect()

    def pyiceberg(name: str, columns: str = "*") -> Answer:
        return _of_arrow(lake.pyiceberg().load_table(name).scan().to_arrow())

    def duckdb(name: str, columns: str = "*") -> Answer:
        return duckdb_rows(_location(lake, name), columns)

    return {"spark": spark, "duckdb": duckdb, "pyiceberg": pyiceberg}


@contextmanager
def all_readers(lake: Lake, folder: Path) -> Iterator[Mapping[str, Read]]:
    """Yield all readers, including Trino, behind a REST catalog, and ClickHouse.

    :param folder: folder of their files.
    """
    from local_services.iceberg_rest import IcebergRest
    from local_services.readers import LOCAL_FILES, ClickHouse, Trino

    with ExitStack() as running:
        rest, click = running.enter_context(IcebergRest(folder / "rest")), running.enter_context(ClickHouse())
        catalogs = {"lake": {"iceberg.rest-catalog.uri": rest.uri, **LOCAL_FILES}}
        server = running.enter_context(Trino(folder / "trino", catalogs))
        numbers = count()
        _post(rest.uri, "namespaces", namespace=["outside"])

        def trino(name: str, columns: str = "*") -> Answer:
            there = f"t{next(numbers)}"
            table = {"name": there, "metadata-location": _location(lake, name)}
            _post(rest.uri, "namespaces/outside/register", **table)
            return server.rows(f"SELECT {columns} FROM lake.outside.{there}")

        def clickhouse(name: str, columns: str = "*") -> Answer:
            table, _, file = unquote(urlsplit(_location(lake, name)).path).partition("/metadata/")
            source = f"icebergLocal('{table}', SETTINGS iceberg_metadata_file_path = 'metadata/{file}')"
            return _of_arrow(
                click.table(f"SELECT {columns} FROM {source} SETTINGS output_format_arrow_string_as_string = 0")
            )

        yield {**readers_at_hand(lake), "trino": trino, "clickhouse": clickhouse}


def _post(uri: str, what: str, **body: Any) -> None:
    request = Request(f"{uri}/v1/{what}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60):
        pass


def _location(lake: Lake, name: str) -> str:
    # pyiceberg cannot load tables with variants
    return str(lake.table(name).java.operations().current().metadataFileLocation())


def _of_arrow(table: Any) -> Answer:
    return [list(row.values()) for row in table.to_pylist(maps_as_pydicts="strict")]


def plain_rows(lake: Lake, name: str, rows: Answer) -> Rows:
    """Return the rows of a table sorted and in one form, whatever types a reader's Python API returns."""
    columns = [field.field_type for field in lake.pyiceberg().load_table(name).schema().fields]
    return sorted((tuple(plain(*pair) for pair in zip(row, columns, strict=True)) for row in rows), key=repr)


def plain(value: Any, kind: types.IcebergType) -> Any:
    """Return a value in one form."""
    if value is None:
        return None
    if isinstance(kind, types.StructType):
        parts = value.values() if isinstance(value, dict) else value
        return tuple(plain(part, field.field_type) for part, field in zip(parts, kind.fields, strict=True))
    if isinstance(kind, types.ListType):
        return tuple(plain(part, kind.element_type) for part in value)
    if isinstance(kind, types.MapType):
        return tuple(sorted((plain(k, kind.key_type), plain(v, kind.value_type)) for k, v in dict(value).items()))
    return _primitive(value, kind)


def _primitive(value: Any, kind: types.IcebergType) -> Any:
    if isinstance(kind, types.DecimalType):
        return Decimal(value)
    if isinstance(kind, types.BinaryType):
        return base64.b64decode(value) if isinstance(value, str) else bytes(value)
    if isinstance(kind, types.StringType):
        return value.decode() if isinstance(value, bytes) else str(value)
    if isinstance(kind, types.DoubleType):
        # a NaN equals nothing
        return repr(float(value))
    if isinstance(kind, types.DateType):
        return value if isinstance(value, date) else date.fromisoformat(value)
    if isinstance(kind, types.TimestampType | types.TimestamptzType):
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value.removesuffix(" UTC"))
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return bool(value) if isinstance(kind, types.BooleanType) else value
