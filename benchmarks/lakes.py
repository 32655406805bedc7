"""Make lakes of many tables with equality deletes, whose sizes follow published distributions."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import int_array, jvm
from lakecdc.iceberg.staging import WrittenFile
from lakecdc.iceberg.table import IcebergTable
from lakecdc.runtime.session import open_session
from lakecdc.writer.parquet import ArrowFile, FileLayout

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

JOB = "rewrite_delete_files"
#: names and Spark SQL types of all tables
COLUMNS = {"id": "bigint NOT NULL", "name": "string", "amount": "double"}
Ids = np.ndarray[Any, np.dtype[np.int64]]
_FEWEST_ROWS, _MOST_ROWS = 20_000, 1_000_000
_MOST_FILES = 150
_COMMITS = 2
# row counts of the 24 tables of TPC-DS at scale factor 1 (specification, table 3-2)
_TPC_DS = (
    *(6, 11_718, 144_067, 1_441_548, 100_000, 50_000, 1_920_800, 73_049, 7_200, 20, 11_745_000, 18_000),
    *(300, 35, 20, 12, 287_514, 2_880_404, 86_400, 5, 60, 71_763, 719_384, 30),
)


def _of_tpc_ds(tables: int, _: np.random.Generator) -> list[float]:
    return [float(_TPC_DS[number % len(_TPC_DS)]) for number in range(tables)]


def _of_file_systems(tables: int, draw: np.random.Generator) -> list[float]:
    """Draw file sizes: Agrawal et al., Generating Realistic Impressions for File-System Benchmarking, FAST 2009."""
    return [float(size) for size in draw.lognormal(9.48, 2.46, tables)]


def _of_ycsb(tables: int, _: np.random.Generator) -> list[float]:
    """Rank by YCSB's constant of Zipf's law (Cooper et al., SoCC 2010)."""
    return [(rank + 1) ** -0.99 for rank in range(tables)]


def _drawn(tables: int, draw: np.random.Generator) -> list[float]:
    """Draw from a mixture of two kinds of tables."""
    kinds = draw.uniform((4, 0.5), (14, 2.5), (2, 2))
    chosen = kinds[draw.integers(0, 2, tables)]
    return [float(size) for size in draw.lognormal(chosen[:, 0], chosen[:, 1])]


#: relative sizes of tables, by distribution
SIZES: dict[str, Callable[[int, np.random.Generator], list[float]]] = {
    "tpc_ds": _of_tpc_ds,
    "file_systems": _of_file_systems,
    "ycsb": _of_ycsb,
    "drawn": _drawn,
}


@dataclass(frozen=True)
class Shape:
    """The layout of one table.

    :param delete_files: number of equality-delete files.
    :param deletes: rows per delete file.
    """

    rows: int
    files: int
    delete_files: int
    deletes: int


def shapes(distribution: str, tables: int, seed: int) -> list[Shape]:
    """Draw tables: sizes from the distribution, and write habits independent of size.

    :param distribution: a key of :data:`SIZES`.
    """
    draw = np.random.default_rng([seed, *distribution.encode()])
    sizes = SIZES[distribution](tables, draw)
    scale = _MOST_ROWS / max(sizes)
    drawn = []
    for size in draw.permutation(sizes):
        rows = max(_FEWEST_ROWS, int(size * scale))
        # from streams of small files to loads of large ones, and what streams left since the last compaction
        files = _within(rows / draw.lognormal(10, 1.2) + draw.lognormal(3, 0.8))
        delete_files = _within(draw.lognormal(1.5, 1.2))
        drawn.append(Shape(rows, files, delete_files, max(1, int(rows * draw.uniform(0.0005, 0.01)))))
    return drawn


def commits(shape: Shape) -> list[int]:
    """Return the number of delete files in each delete commit."""
    parts = np.array_split(np.arange(shape.delete_files), min(_COMMITS, shape.delete_files))
    return [len(part) for part in parts]


def _within(files: float) -> int:
    return min(_MOST_FILES, max(1, math.ceil(files)))


def create(spark: SparkSession, table: str) -> None:
    """Make an empty table of :data:`COLUMNS`, format version 3.

    :param table: catalog, namespace and name.
    """
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='3')")


class Lake:
    """Tables in a folder, and a session to work on them.

    :param folder: its name is the catalog's, as a session keeps a catalog's settings.
    :param drawn: shape of each table.
    """

    def __init__(self, folder: Path, drawn: list[Shape], seed: int) -> None:
        self._folder, self._name = folder, folder.name
        (folder / "warehouse").mkdir(parents=True)
        self.catalog = {
            "name": self._name,
            "properties": {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            },
        }
        self.tables = [f"bench.t{number:03}" for number in range(len(drawn))]
        first = parse_spec({"version": 1, "job": JOB, "catalog": self.catalog, "tables": self.tables})
        self._spark: SparkSession = open_session(first.catalog, "bench-plan")
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._name}.bench")
        for number, (name, shape) in enumerate(zip(self.tables, drawn, strict=True)):
            self._make(name, shape, np.random.default_rng([seed, number]))
        self._heads = self._pointers("SELECT metadata_location, table_name FROM iceberg_tables")

    def load(self) -> SqlCatalog:
        """Load the catalog as workers read it."""
        properties: dict[str, Any] = self.catalog["properties"]  # type: ignore[assignment]
        return SqlCatalog(self._name, **{name: value for name, value in properties.items() if name != "type"})

    def roll_back(self) -> None:
        """Roll all tables back to their initial state; no job deletes their files."""
        with sqlite3.connect(self._folder / "catalog.db") as connection:
            connection.executemany(
                "UPDATE iceberg_tables SET previous_metadata_location = NULL, metadata_location = ? "
                "WHERE table_name = ?",
                self._heads,
            )

    def _pointers(self, query: str) -> list[tuple[str, str]]:
        with sqlite3.connect(self._folder / "catalog.db") as connection:
            return connection.execute(query).fetchall()

    def _make(self, name: str, shape: Shape, draw: np.random.Generator) -> None:
        create(self._spark, f"{self._name}.{name}")
        table = IcebergTable(self._spark, self._name, name)
        writer = Writer(table)
        ids = np.array_split(np.arange(shape.rows), shape.files)
        append_changes(table, RowChanges(rows=[writer.rows(part) for part in ids]), PositionFence(None))
        for count in commits(shape):
            keys = [draw.integers(0, shape.rows, shape.deletes) for _ in range(count)]
            changes = RowChanges([writer.rows(np.unique(keys[0]))], [writer.deletes(drawn) for drawn in keys])
            append_changes(table.refresh(), changes, PositionFence(None))


class Writer:
    """Write files of one table of :data:`COLUMNS`; a Spark task per file would take longer than the measured work."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        folder, sources = f"{table.location}/data", {column: column for column in COLUMNS}
        self._rows = FileLayout.of(table, folder, sources)
        self._keys = FileLayout.of(table, folder, sources, names=["id"])

    def rows(self, ids: Ids, text: str = "customer") -> Any:
        """Write a data file.

        :param text: prefix of the names.
        :return: Java ``DataFile`` for a commit.
        """
        names = pc.binary_join_element_wise(text, pc.cast(pa.array(ids), pa.string()), " ")
        rows = pa.table({"id": ids, "name": names, "amount": ids / 7})
        builder = jvm(self._table.spark).org.apache.iceberg.DataFiles.builder(self._table.java.spec())
        return self._described(builder, self._written(rows, self._rows), len(ids))

    def deletes(self, ids: Ids) -> Any:
        """Write a file of equality deletes.

        :return: Java ``DeleteFile`` for a commit.
        """
        builder = jvm(self._table.spark).org.apache.iceberg.FileMetadata.deleteFileBuilder(self._table.java.spec())
        builder = builder.ofEqualityDeletes(int_array(self._table.spark, [self._table.field_id("id")]))
        return self._described(builder, self._written(pa.table({"id": ids}), self._keys), len(ids))

    def _described(self, builder: Any, written: WrittenFile, rows: int) -> Any:
        """Omit column metrics: reading them from footers would take longest of all."""
        builder = builder.withPath(written.location).withFormat("PARQUET").withFileSizeInBytes(written.bytes)
        return builder.withRecordCount(rows).build()

    def _written(self, rows: pa.Table, layout: FileLayout) -> WrittenFile:
        file = ArrowFile(layout)
        file.write(rows)
        size = file.close()
        assert file.location is not None, "rows were written"
        return WrittenFile(file.location, size)
