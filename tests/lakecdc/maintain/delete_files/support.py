"""Tables with equality deletes, and what must hold after every conversion."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from tests.conftest import Lake
from tests.lakecdc.maintain.support import count

Rows = list[tuple[Any, ...]]
#: readers that share no code with Spark
READERS = ("pyiceberg", "duckdb")


def create(lake: Lake, columns: str, version: int, partitioned_by: str = "", **properties: str) -> str:
    """Create a table and return its name; ``__`` in a property's name means a dot."""
    name = lake.new_name("deletes")
    settings = {"format-version": str(version)} | {k.replace("__", "."): v for k, v in properties.items()}
    partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    listed = ", ".join(f"'{key}'='{value}'" for key, value in settings.items())
    lake.sql(f"CREATE TABLE lake.{name} ({columns}) USING iceberg {partitioning} TBLPROPERTIES ({listed})")
    return name


def insert(lake: Lake, name: str, query: str, files: int = 1) -> None:
    """Append the rows of a query as about ``files`` files per partition."""
    table = lake.table(name)
    rows = lake.sql(query)
    rows = rows.repartition(files) if files > 1 else rows.coalesce(1)
    append_changes(table, RowChanges(rows=stage_rows(table, rows)), PositionFence(None))


def change(
    lake: Lake,
    name: str,
    key: Sequence[str],
    keys: str,
    rows: str | None = None,
    specs: Iterable[int] | None = None,
) -> None:
    """Commit equality deletes and new rows at one sequence number, as a CDC writer does.

    :param keys: query of the keys.
    :param rows: query of the rows.
    :param specs: partition specs that the deletes are written for; default: the current one.
    """
    table = lake.table(name)
    deletes = []
    for spec_id in specs if specs is not None else [table.java.spec().specId()]:
        deletes += stage_equality_deletes(table, lake.sql(keys).coalesce(1), key, spec_id)
    added = stage_rows(table, lake.sql(rows).coalesce(1)) if rows else []
    append_changes(table, RowChanges(added, deletes), PositionFence(None))


def run(lake: Lake, name: str, **options: Any) -> TableReport:
    """Run the job in this process, as the job runner does."""
    spec = parse_spec(lake.spec("rewrite_delete_files", name, options=options))
    return rewrite_delete_files(lake.table(name), spec)


def spark_rows(lake: Lake, name: str) -> Rows:
    """Return all rows as Spark reads them, sorted."""
    return _sorted(tuple(row) for row in lake.sql(f"SELECT * FROM lake.{name}").collect())


def pyiceberg_rows(lake: Lake, name: str) -> Rows:
    """Return all rows as pyiceberg reads them, sorted."""
    table = lake.pyiceberg().load_table(name).scan().to_arrow()
    return _sorted(tuple(row.values()) for row in table.to_pylist())


def convert(lake: Lake, name: str, readers: Collection[str] = READERS, **options: Any) -> TableReport:
    """Run the job and check what must hold for any table: three readers see what Spark saw before.

    pyiceberg refuses tables with equality deletes, which proves that they existed before and not after.

    :param readers: readers besides Spark that support the table's types and formats.
    """
    before = spark_rows(lake, name)
    with pytest.raises(ValueError, match="equality delete"):
        pyiceberg_rows(lake, name)
    report = run(lake, name, **options)
    assert report.outcome == "done", report.reason
    assert report.metrics["equality_delete_files_after"] == count(lake, name, 2) == 0
    assert spark_rows(lake, name) == before
    if "pyiceberg" in readers:
        assert _plain(pyiceberg_rows(lake, name)) == _plain(before)
    if "duckdb" in readers:
        assert _plain(_sorted(lake.duckdb_rows(name))) == _plain(before)
    return report


def row_groups(lake: Lake, name: str) -> list[int]:
    """Return the number of row groups of each live data file."""
    from pyarrow.parquet import ParquetFile

    files = lake.table(name).metadata("files").where("content = 0").select("file_path").collect()
    return [ParquetFile(urlsplit(path).path).num_row_groups for (path,) in files]


def _sorted(rows: Iterable[tuple[Any, ...]]) -> Rows:
    return sorted(rows, key=repr)


def _plain(rows: Rows) -> Rows:
    """Convert values from the classes of a reader's Python API."""
    return _sorted(tuple(_value(v) for v in row) for row in rows)


def _value(value: Any) -> Any:
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.replace(tzinfo=None) - value.utcoffset()
    return value
