"""Run ``MERGE INTO`` in the same Spark, which Iceberg's documentation recommends for change data.

Events are parsed by ``from_json`` with a schema, reduced to the last one per key, and merged; the table is
merge-on-read, distributed by hash, as Iceberg's "Writing Distribution Modes" advises for MERGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.events import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTIES = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.distribution-mode": "hash",
    "write.merge.distribution-mode": "hash",
    "write.parquet.compression-codec": "zstd",
}


def create(spark: SparkSession, table: str, version: int = 2) -> None:
    """Make the table."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    properties = ", ".join(f"'{k}'='{v}'" for k, v in {**_PROPERTIES, "format-version": version}.items())
    spark.sql(
        f"CREATE TABLE {table} ({columns}) USING iceberg PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ({properties})"
    )


def ingest(spark: SparkSession, table: str, files: str, *, partial: bool = False) -> None:
    """Merge all events of some files; with ``partial``, null values leave the table's values unchanged."""
    image = "struct<" + ",".join(f"{name}:{kind}" for name, kind in COLUMNS.items()) + ">"
    shape = f"before {image}, after {image}, op string, source struct<lsn:bigint>"
    events = spark.read.text(files).selectExpr(f"from_json(value, '{shape}') AS e").select("e.*")
    keyed = events.selectExpr("coalesce(after.id, before.id) AS id", "op", "after", "source.lsn AS lsn")
    keyed.createOrReplaceTempView("bench_events")
    names = list(COLUMNS)
    value = "coalesce(s.after.{0}, t.{0})" if partial else "s.after.{0}"
    sets = ", ".join(f"t.{n} = {value.format(n)}" for n in names)
    values = ", ".join(f"s.after.{n}" for n in names)
    spark.sql(
        f"""MERGE INTO {table} t USING (
          SELECT id, max_by(op, lsn) AS op, max_by(after, lsn) AS after FROM bench_events GROUP BY id) s ON t.id = s.id
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {sets}
        WHEN NOT MATCHED AND s.op != 'd' THEN INSERT ({", ".join(names)}) VALUES ({values})"""
    )
