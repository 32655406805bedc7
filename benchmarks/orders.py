"""Make tables of orders as changes leave them: many files, each with ids of the whole range."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.sql import SqlCatalog

from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "lake"
# share of the rows, and of the files, of the small table
_SMALL = 50
# prime and larger than any number of rows: ids are a permutation
_STRIDE = 982_451_653
DELETED = "id % 20 = 7"
_WORDS = "array('call', 'before', 'delivery', 'leave', 'at', 'the', 'door', 'gift', 'fragile', 'invoice', 'by', 'mail')"
_PLAIN = {
    "id": "n",
    "customer": "concat('customer ', abs(hash(n)) % 100000)",
    "email": "concat('c', abs(hash(n)) % 100000, '@example.org')",
    "city": "concat('city ', abs(hash(n, 1)) % 500)",
    "token": "md5(cast(n AS string))",
    "status": "element_at(array('new', 'paid', 'sent', 'done'), cast(n % 4 AS int) + 1)",
    "note": f"array_join(transform(sequence(1, 5), i -> element_at({_WORDS}, abs(hash(n, i)) % 12 + 1)), ' ')",
    "amount": "abs(hash(n, 2)) % 1000000 / 100D",
    "weight": "rand(1)",
    "created_at": "timestamp_millis(1700000000000 + 997 * n)",
    "updated_at": "timestamp_millis(1750000000000 + 31 * place)",
}
_NESTED = {
    "address": "named_struct('street', concat('street ', abs(hash(n, 3)) % 5000), 'zip', abs(hash(n, 4)) % 100000)",
    "items": "transform(sequence(1, 1 + cast(n % 3 AS int)), i -> named_struct("
    "'sku', concat('sku-', abs(hash(n, i)) % 20000), 'count', i, 'price', abs(hash(n, i, 1)) % 10000 / 100D))",
    "tags": "map('channel', element_at(array('web', 'shop', 'phone'), cast(n % 3 AS int) + 1), "
    "'campaign', concat('c', abs(hash(n, 5)) % 50))",
}


class Shape(NamedTuple):
    """The layout of a table.

    :param row_bytes: approximate size of a row in its file.
    """

    version: int
    columns: dict[str, str]
    row_bytes: int
    deletes: bool = False


SHAPES = {
    "plain": Shape(2, _PLAIN, 52),
    "deletes": Shape(3, _PLAIN, 52, deletes=True),
    "nested": Shape(2, {**_PLAIN, **_NESTED}, 72),
}


class Lake:
    """The catalog of the benchmark, whose tables can be rolled back to their initial state."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._database = folder, folder / "catalog.db"
        uri = {"uri": f"sqlite:///{self._database}", "warehouse": f"file://{folder}/warehouse"}
        self._catalog = {"name": CATALOG, "properties": {"type": "sql", **uri}}
        self._properties = uri

    def spec(self, job: str, table: str, options: dict[str, Any]) -> JobSpec:
        """Return the spec of a job on one table."""
        return parse_spec({"version": 1, "job": job, "catalog": self._catalog, "tables": [table], "options": options})

    def session(self) -> SparkSession:
        """Return a session like those of our jobs."""
        return open_session(self.spec("compact_data_files", "bench.plain", {}).catalog, "bench-layout")

    def fill(self, shape: str, rows: int, files: int) -> None:
        """Make a table, and a small one of the same shape."""
        for name, part in ((f"bench.{shape}", 1), (f"bench.{shape}_small", _SMALL)):
            self._fill(name, SHAPES[shape], rows // part, max(12, files // part))

    def _fill(self, name: str, shape: Shape, rows: int, files: int) -> None:
        spark = self.session()
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bench")
        ids = spark.range(0, rows, 1, files).selectExpr("id AS place", f"id * {_STRIDE} % {rows} AS n")
        source = ids.selectExpr(*(f"{value} AS {column}" for column, value in shape.columns.items()))
        properties = {
            "format-version": shape.version,
            "write.parquet.compression-codec": "zstd",
            "write.delete.mode": "merge-on-read",
        }
        table_properties = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in source.schema)
        spark.sql(f"CREATE TABLE {CATALOG}.{name} ({columns}) USING iceberg TBLPROPERTIES ({table_properties})")
        table = IcebergTable(spark, CATALOG, name)
        append_changes(table, RowChanges(rows=stage_rows(table, source)), PositionFence(None))
        if shape.deletes:
            spark.sql(f"DELETE FROM {CATALOG}.{name} WHERE {DELETED}")

    def keep(self) -> None:
        """Record the current files as the state for :meth:`roll_back`."""
        shutil.copy(self._database, self.folder / "start.db")
        paths = [str(path) for path in (self.folder / "warehouse").rglob("*") if path.is_file()]
        (self.folder / "start.json").write_text(json.dumps(paths))

    def roll_back(self) -> None:
        """Roll all tables back and delete the files written since."""
        initial_paths = {*json.loads((self.folder / "start.json").read_text())}
        for path in (self.folder / "warehouse").rglob("*"):
            if path.is_file() and str(path) not in initial_paths:
                path.unlink()
        shutil.rmtree(self.folder / "duckdb", ignore_errors=True)
        shutil.copy(self.folder / "start.db", self._database)
        # no contender pays for another's writes
        os.sync()

    def metadata(self, name: str) -> str:
        """Return the path of a table's metadata file."""
        return _path(SqlCatalog(CATALOG, **self._properties).load_table(name).metadata_location)

    def files(self, name: str) -> tuple[list[str], int]:
        """Return a table's data files, and how many of them have deletes."""
        tasks = list(SqlCatalog(CATALOG, **self._properties).load_table(name).scan().plan_files())
        return [_path(t.file.file_path) for t in tasks], sum(bool(t.delete_files) for t in tasks)


def _path(location: str) -> str:
    return unquote(urlsplit(location).path)
