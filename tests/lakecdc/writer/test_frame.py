"""Frames written by tasks look the same to all readers as those written by Iceberg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.definition import current_spec_id, spark_types
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import columns_of, stage_equality_deletes, stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.apply.rows import cluster_rows
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.writer.frame import stage_frame
from lakecdc.writer.parquet import refusal
from lakecdc.writer.partitions import partitioning_of
from tests.conftest import Lake
from tests.lakecdc.maintain.support import run as run_maintenance

_COLUMNS = (
    "id BIGINT NOT NULL, region STRING, paid BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "price DECIMAL(5, 2), raw BINARY, share DOUBLE"
)
_ROWS = (
    "VALUES (1L, 'a/b=c', true, DATE'2026-01-02', TIMESTAMP'2026-01-02 03:04:05.678901Z', "
    "TIMESTAMP_NTZ'2026-01-02 23:59:59', 1.50, X'00FF10', 0.5D), "
    "(-2L, '', false, DATE'1969-12-31', TIMESTAMP'1969-12-31 23:00:00Z', TIMESTAMP_NTZ'1969-01-01 00:00:00', "
    "-0.05, X'', -0.5D), "
    "(3L, '__HIVE_DEFAULT_PARTITION__', null, null, null, null, null, null, null), "
    "(4L, null, true, DATE'0001-01-01', TIMESTAMP'9999-12-31 23:59:59Z', TIMESTAMP_NTZ'0001-01-01 00:00:00', "
    "-949.99, X'00FF10', 3D), "
    "(5L, 'é東京 and some more than sixteen', false, DATE'2026-01-02', TIMESTAMP'2026-01-02 03:59:00Z', "
    "TIMESTAMP_NTZ'2026-01-02 00:00:00', 999.99, X'00FF11', 7D)"
)
_NAMES = ("id", "region", "paid", "day", "at", "local", "price", "raw", "share")
# values that Iceberg reads from another writer's footer
_OF_A_WRITER = {"file_path", "file_size_in_bytes", "column_sizes", "split_offsets"}


def why_not(table: IcebergTable) -> str | None:
    """Return why tasks cannot write its rows, None if they can."""
    types = spark_types(table)
    return refusal(table, partitioning_of(table, types, {name: name for name in types}))


def make_table(lake: Lake, partitioned_by: str, properties: str = "", columns: str = _COLUMNS) -> IcebergTable:
    """Create an empty table."""
    name = lake.new_name("frame")
    partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    lake.sql(
        f"CREATE TABLE lake.{name} ({columns}) USING iceberg {partitioning} "
        f"TBLPROPERTIES ('format-version'='2'{properties})"
    )
    return lake.table(name)


def given(table: IcebergTable, rows: str = _ROWS, names: tuple[str, ...] = _NAMES) -> Any:
    """Return rows in the columns of a table."""
    from pyspark.sql import functions as F

    frame = table.spark.sql(f"SELECT * FROM {rows}").toDF(*names).coalesce(1)
    return frame.select(*columns_of(table, {name: F.col(f"`{name}`") for name in names}))


def commit(table: IcebergTable, files: list[Any]) -> IcebergTable:
    """Commit the files and return the table."""
    append_changes(table, RowChanges(files), PositionFence(None))
    return table.refresh()


def facts(table: IcebergTable) -> list[dict[str, Any]]:
    """Return the facts of each file in manifests, except those that depend on the Parquet writer."""
    rows = [row.asDict(recursive=True) for row in table.metadata("files").drop("readable_metrics").collect()]
    comparable = [{name: value for name, value in row.items() if name not in _OF_A_WRITER} for row in rows]
    return sorted(comparable, key=lambda row: (str(row.get("partition")), row["lower_bounds"][1]))


def seen(lake: Lake, table: IcebergTable) -> list[list[tuple[Any, ...]]]:
    """Return the rows as Spark, DuckDB and pyiceberg read them, sorted by their text."""
    theirs = lake.pyiceberg().load_table(table.name).scan().to_arrow()
    return [
        sorted(map(tuple, table.read().collect()), key=str),
        sorted(lake.duckdb_rows(table.name), key=str),
        sorted(zip(*theirs.to_pydict().values(), strict=True), key=str),
    ]


@pytest.mark.parametrize(
    "partitioned_by",
    [
        pytest.param("", marks=pytest.mark.soak),
        "id, region, paid, day, at, local, price, raw",
        pytest.param(
            "bucket(4, id), truncate(2, region), truncate(2, raw), truncate(50, price), "
            "years(day), months(local), hours(at)",
            marks=pytest.mark.soak,
        ),
        "truncate(10, id), bucket(4, region), bucket(3, raw), bucket(5, price), bucket(2, day), days(local), days(at)",
    ],
    ids=["none", "identity", "truncated", "buckets"],
)
def test_files_equal_those_of_icebergs_writer(lake: Lake, partitioned_by: str) -> None:
    more = ", 'write.metadata.metrics.column.raw'='none', 'write.metadata.metrics.column.region'='counts'"
    ours, theirs = make_table(lake, partitioned_by, more), make_table(lake, partitioned_by, more)
    assert why_not(ours) is None
    commit(ours, stage_frame(ours, given(ours)))
    commit(theirs, stage_rows(theirs, given(theirs)))
    assert facts(ours) == facts(theirs)
    rows = seen(lake, ours)
    assert rows == seen(lake, theirs) and len(rows[0]) == 5
    # a wrong partition would hide its rows
    for condition in ("id = -2", "region = ''", "day = DATE '2026-01-02' AND id = 5", "price < -949", "raw = ''::BLOB"):
        counts = lake.duckdb_rows(ours.name, f"count(*) FILTER ({condition})")
        query = condition.replace("''::BLOB", "X''")
        assert [tuple(row) for row in ours.read().where(query).selectExpr("count(*)").collect()] == counts == [(1,)]


def test_nested_columns_keep_their_field_ids(lake: Lake) -> None:
    columns = (
        "id INT, s STRUCT<`a-b`: INT, at: TIMESTAMP, inner: ARRAY<STRUCT<c: STRING, d: DECIMAL(9, 2)>>>, "
        "m MAP<STRING, STRUCT<x: DOUBLE>>, texts ARRAY<STRING>"
    )
    rows = (
        "VALUES (1, named_struct('a-b', 1, 'at', TIMESTAMP'2026-01-02 00:00:00Z', 'inner', "
        "array(named_struct('c', 'x', 'd', 1.5), null)), map('k', named_struct('x', 0.5D)), array('a', null)), "
        "(2, null, map(), array()), (3, named_struct('a-b', null, 'at', null, 'inner', null), null, null)"
    )
    ours, theirs = make_table(lake, "", columns=columns), make_table(lake, "", columns=columns)
    assert why_not(ours) is None
    for table, stage in ((ours, stage_frame), (theirs, stage_rows)):
        commit(table, stage(table, given(table, rows, ("id", "s", "m", "texts"))))
        # members keep their values by id alone
        lake.sql(f"ALTER TABLE {table.sql_name} RENAME COLUMN s.inner TO outer")
        table.refresh()
    assert seen(lake, ours) == seen(lake, theirs)
    assert facts(ours) == facts(theirs)


def test_rows_of_format_3_get_row_ids(lake: Lake) -> None:
    name = lake.new_name("frame")
    lake.sql(
        f"CREATE TABLE lake.{name} (id BIGINT) USING iceberg PARTITIONED BY (bucket(2, id)) "
        "TBLPROPERTIES ('format-version'='3')"
    )
    table = lake.table(name)
    commit(table, stage_frame(table, lake.spark.range(10).coalesce(1)))
    rows = lake.sql(f"SELECT _row_id, _last_updated_sequence_number FROM lake.{name}").collect()
    assert sorted(map(tuple, rows)) == [(number, 1) for number in range(10)]


def test_a_missing_required_value_leaves_no_file(lake: Lake) -> None:
    table = make_table(lake, "bucket(2, id)")
    rows = given(table).selectExpr("CASE WHEN id < 4 THEN id END AS id", *_NAMES[1:])
    with pytest.raises(Exception, match="non-nullable"):
        stage_frame(table, rows)
    folder = lake.folder / "warehouse" / table.name.replace(".", "/")
    assert not list(folder.rglob("*.parquet"))


def _with_changes(table: IcebergTable, stage: Callable[..., list[Any]], delete: Callable[..., list[Any]]) -> None:
    """Commit rows of one partition spec, then new values of some of them by another spec, staged as a joined frame."""
    spark, key = table.spark, ["id", "region"]
    rows = spark.sql("SELECT id, if(id % 3 = 0, 'a/b', concat('é', id % 5)) AS region, 'old' AS v FROM range(40)")
    commit(table, stage(table, rows.coalesce(1)))
    spark.sql(f"ALTER TABLE {table.sql_name} REPLACE PARTITION FIELD bucket(4, id) WITH truncate(10, id)")
    spark.sql(f"ALTER TABLE {table.sql_name} DROP PARTITION FIELD truncate(1, region)")
    table.refresh()
    changed = spark.sql("SELECT id, 'new' AS v, id % 2 = 0 AS goes FROM range(5, 50, 3)")
    joined = changed.join(rows.select("id", "region"), "id", "left").selectExpr(
        "id", "coalesce(region, 'z') AS region", "v", "goes"
    )
    clusters = cluster_rows(table, joined.where("NOT goes").drop("goes"), key, current_spec_id(table), 0)
    keys = cluster_rows(table, joined.select(*key), key, 0, 0)
    append_changes(table, RowChanges(stage(table, clusters), delete(table, keys, key, 0)), PositionFence(None))
    table.refresh()


def test_deletes_of_a_joined_frame_reach_the_files_of_an_older_spec(lake: Lake) -> None:
    columns = "id BIGINT NOT NULL, region STRING NOT NULL, v STRING"
    ours, theirs = (make_table(lake, "bucket(4, id), truncate(1, region)", columns=columns) for _ in range(2))
    _with_changes(ours, stage_frame, stage_frame)
    _with_changes(theirs, stage_rows, stage_equality_deletes)
    assert facts(ours) == facts(theirs)
    written = [row.asDict() for row in ours.metadata("files").select("file_path", "content", "spec_id").collect()]
    assert all("/frame-" in row["file_path"] for row in written)
    assert {(row["content"], row["spec_id"]) for row in written} == {(0, 0), (0, 2), (2, 0)}
    by_spark = sorted(map(tuple, theirs.read().collect()))
    assert [row[0] for row in by_spark if row[2] == "new"] == [5, 11, 17, 23, 29, 35, 41, 47] and len(by_spark) == 36
    assert sorted(map(tuple, ours.read().collect())) == sorted(lake.duckdb_rows(ours.name)) == by_spark
    # pyiceberg cannot read equality deletes
    assert run_maintenance(lake, rewrite_delete_files, ours.name).outcome == "done"
    assert seen(lake, ours.refresh()) == [sorted(by_spark, key=str)] * 3


@pytest.mark.parametrize(
    ("partitioned_by", "properties", "why"),
    [
        ("share", "", "the table is partitioned by transforms that tasks cannot evaluate"),
        pytest.param("", ", 'write.format.default'='avro'", "write.format.default is avro", marks=pytest.mark.soak),
    ],
)
def test_icebergs_writer_writes_tables_that_tasks_cannot_write(
    lake: Lake, partitioned_by: str, properties: str, why: str
) -> None:
    table = make_table(lake, partitioned_by, properties)
    assert why_not(table) == why
    # a task without rows writes no file
    files = stage_frame(table, given(table).repartition(8))
    assert all(int(file.recordCount()) for file in files) and commit(table, files).read().count() == 5


def test_types_without_an_arrow_type_are_left_to_iceberg(lake: Lake) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import FixedType, NestedField, UUIDType

    catalog, name, odd = lake.pyiceberg(), lake.new_name("frame"), lake.new_name("frame")
    catalog.create_table(name, Schema(NestedField(1, "code", FixedType(3))))
    table = lake.table(name)
    assert why_not(table) is None
    commit(table, stage_frame(table, lake.sql("SELECT X'010203' AS code")))
    assert seen(lake, table) == [[(b"\x01\x02\x03",)]] * 3
    catalog.create_table(odd, Schema(NestedField(1, "code", UUIDType())))
    assert why_not(lake.table(odd)) == "column code has uuids, which Spark reads as text"
    place = f"file:{lake.folder}/a#b"
    lake.sql(f"CREATE TABLE lake.{odd}_at (id INT) USING iceberg LOCATION '{place}'")
    assert (why_not(lake.table(f"{odd}_at")) or "").startswith(f"the table's files are at {place}/")
