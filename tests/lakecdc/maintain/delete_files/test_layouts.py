"""Scopes that are easily confused: transforms, nulls, imported files, specs that only look unpartitioned."""

from __future__ import annotations

import re

import pytest

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import int_array, jvm
from lakecdc.iceberg.staging import stage_rows
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import (
    change,
    convert,
    create,
    insert,
    pyiceberg_rows,
    run,
    spark_rows,
)
from tests.lakecdc.maintain.support import count, manifests_of_spec
from tests.versions import V2


@V2
def test_transforms_of_null_and_odd_values_keep_scopes_apart(lake: Lake, version: int) -> None:
    name = create(
        lake,
        "ts timestamp, code string, n int, v int",
        version,
        "days(ts), truncate(2, code), bucket(3, n)",
    )
    # days before 1970 are negative, and a code may be shorter than the truncation, empty, or cut between two characters
    days = "VALUES (TIMESTAMP'1969-12-31 23:59:59.999999'), (TIMESTAMP'2024-02-29 00:00:00'), (NULL) AS d(ts)"
    codes = "VALUES ('🦀🦀🦀'), (''), ('a/=%'), (NULL) AS c(code)"
    rows = f"SELECT ts, code, n, n AS v FROM {days} CROSS JOIN {codes} CROSS JOIN (VALUES (1), (NULL) AS m(n))"
    insert(lake, name, rows)
    key = ["ts", "code", "n"]
    change(lake, name, key, f"SELECT ts, code, n FROM ({rows}) WHERE ts IS NULL OR code = 'a/=%'")
    change(lake, name, key, f"SELECT ts, code, n FROM ({rows}) WHERE code = '🦀🦀🦀' AND n IS NULL", f"{rows} LIMIT 3")
    before = len(spark_rows(lake, name))
    report = convert(lake, name)
    assert (before, report.metrics["positions"]) == (24 - 12 - 2 + 3, 8 + 4 + 2)


def test_partition_columns_may_be_missing_in_files(lake: Lake) -> None:
    """Files imported from Hive have the value only in the partition."""
    name = create(lake, "id bigint, place string, day int", 2, "place, day")
    folder = lake.folder / f"hive_{name}"
    rows = lake.sql("SELECT id, IF(id % 2 = 0, 'Köln', 'a b') AS place, CAST(id % 3 AS int) AS day FROM range(12)")
    rows.coalesce(1).write.partitionBy("place", "day").parquet(str(folder))
    lake.sql(f"CALL lake.system.add_files(table => '{name}', source_table => 'parquet.`{folder}`')")
    assert not lake.spark.read.parquet(*map(str, folder.glob("place=*/day=0/*.parquet"))).columns[1:]
    keys = "SELECT * FROM VALUES (0L, 'Köln', 0), (1L, 'a b', 1), (2L, 'Köln', 0), (8L, 'Köln', 2) AS t(id, place, day)"
    change(lake, name, ["id", "place", "day"], keys, "SELECT 0L AS id, 'Köln' AS place, 0 AS day")
    report = convert(lake, name)
    assert report.metrics["positions"] == 3
    assert len(pyiceberg_rows(lake, name)) == 12 - 3 + 1


@pytest.mark.soak
@pytest.mark.parametrize("version", [2, 3])
def test_an_unknown_unpartitioned_spec_is_not_global(lake: Lake, version: int) -> None:
    """Built with ``PartitionSpec.unpartitioned()``, id 0, a delete belongs to the table's spec 0, which is partitioned.

    It applies only to the partition of nulls, and the conversion must not treat it as global (apache/iceberg
    #14678).
    """
    name = create(lake, "id int, region string", version, "region")
    insert(lake, name, "SELECT CAST(id AS int) AS id, IF(id < 2, NULL, 'north') AS region FROM range(4)")
    table, view = lake.table(name), jvm(lake.spark).org.apache.iceberg
    other = lake.table(create(lake, "id int, region string", version))
    (keys,) = stage_rows(other, lake.sql("SELECT CAST(id AS int) AS id, '' AS region FROM range(4)").coalesce(1))
    delete = (
        view.FileMetadata.deleteFileBuilder(view.PartitionSpec.unpartitioned())
        .ofEqualityDeletes(int_array(lake.spark, [table.field_id("id")]))
        .withPath(keys.location())
        .withFormat("PARQUET")
        .withFileSizeInBytes(keys.fileSizeInBytes())
        .withRecordCount(4)
        .build()
    )
    append_changes(table, RowChanges(deletes=[delete]), PositionFence(None))
    before = spark_rows(lake, name)
    assert {row[1] for row in before} == {"north"}
    report = convert(lake, name)
    assert (report.metrics["scopes"], report.metrics["positions"]) == (1, 2)


@pytest.mark.soak
def test_a_v1_spec_whose_only_field_was_dropped_is_global(lake: Lake) -> None:
    """The dropped field becomes a void transform: partition tuples have a field, but the spec is unpartitioned."""
    name = lake.new_name("void")
    lake.sql(
        f"CREATE TABLE lake.{name} (id bigint, region string) USING iceberg PARTITIONED BY (region) "
        "TBLPROPERTIES ('format-version'='1')"
    )
    insert(lake, name, "SELECT id, IF(id % 2 = 0, 'north', 'south') AS region FROM range(8)")
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD region")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='2')")
    insert(lake, name, "SELECT id, 'later' AS region FROM range(4)")
    change(lake, name, ["id"], "SELECT id FROM range(3)", "SELECT 0L AS id, 'new' AS region")
    report = convert(lake, name)
    assert (report.metrics["scopes"], report.metrics["positions"]) == (1, 6)
    assert count(lake, name, 1) == 3


def table_at(lake: Lake, folder: str, **properties: str) -> str:
    """Create a partitioned v3 table in a folder of the lake; ``__`` in a property's name means a dot."""
    name = lake.new_name("at")
    settings = {"format-version": "3"} | {key.replace("__", "."): value for key, value in properties.items()}
    listed = ", ".join(f"'{key}'='{value}'" for key, value in settings.items())
    lake.sql(
        f"CREATE TABLE lake.{name} (id bigint, p string) USING iceberg PARTITIONED BY (p) "
        f"LOCATION 'file://{lake.folder}/{folder}/{name}' TBLPROPERTIES ({listed})"
    )
    values = "VALUES ('a#b?'), ('100 %'), ('Köln') AS t(p)"
    insert(lake, name, f"SELECT id, p FROM range(4) CROSS JOIN ({values})")
    change(lake, name, ["id", "p"], f"SELECT id, p FROM range(2) CROSS JOIN ({values})")
    return name


def test_odd_locations_and_row_lineage_are_kept(lake: Lake) -> None:
    name = table_at(lake, "a b+c/日本 🦀;%25", **{"write__object-storage__enabled": "true"})
    lineage = f"SELECT *, _row_id, _last_updated_sequence_number FROM lake.{name} ORDER BY _row_id"
    before = lake.sql(lineage).collect()
    # the DuckDB helper parses its path from a URL
    assert convert(lake, name, readers=("pyiceberg",)).metrics["positions"] == 6
    assert lake.sql(lineage).collect() == before
    vectors = lake.table(name).metadata("files").where("content = 1").select("file_path").collect()
    assert all(re.search(r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/lakecdc-[^/]+/deletes-", row[0]) for row in vectors)


def test_a_location_that_tasks_cannot_write_to_is_refused(lake: Lake) -> None:
    name = table_at(lake, "odd # and ?")
    with pytest.raises(UnsupportedError, match="tasks cannot write to paths with '#'"):
        run(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.data.path'='file://{lake.folder}/plain/{name}')")
    before = spark_rows(lake, name)
    # files at the odd location are searched by Iceberg's reader
    metrics = run(lake, name).metrics
    assert (metrics["positions"], metrics["equality_delete_files_after"]) == (6, 0)
    assert spark_rows(lake, name) == before


_MERGING = "commit.manifest-merge.enabled"


def by_region(lake: Lake, version: int, transform: str = "region") -> str:
    """Create two commits by region, with position deletes of both in format v2, and one by buckets of the id."""
    settings = {"write__delete__mode": "merge-on-read", "write__delete__granularity": "partition", _MERGING: "false"}
    name = create(lake, "id bigint, region string", version, transform, **settings)
    rows = "SELECT id, IF(id % 2 = 0, 'north', 'south') AS region FROM range"
    for low in (0, 10):
        insert(lake, name, f"{rows}({low}, {low + 10})")
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 10 < 2")
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD {transform} WITH bucket(2, id)")
    insert(lake, name, f"{rows}(20, 30)")
    return name


def drop_region(lake: Lake, name: str) -> None:
    """Drop the region, so that a commit that merges manifests of the old spec would lose their partitions."""
    lake.sql(f"ALTER TABLE lake.{name} UNSET TBLPROPERTIES ('{_MERGING}')")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN region")


@V2
def test_files_of_a_spec_with_a_dropped_column_stay(lake: Lake, version: int) -> None:
    """Iceberg would write new delete files without their partition: Spark then fails, and pyiceberg shows all rows."""
    name = by_region(lake, version)
    change(lake, name, ["id"], "SELECT id FROM range(18, 24)", "SELECT 99L AS id, 'new' AS region")
    drop_region(lake, name)
    before, old = spark_rows(lake, name), manifests_of_spec(lake, name, 0)
    assert len(old) == 3
    report = run(lake, name)
    assert (report.outcome, report.metrics["positions"]) == ("done", 4)
    assert spark_rows(lake, name) == before == pyiceberg_rows(lake, name)
    assert (manifests_of_spec(lake, name, 0), count(lake, name, 2)) == (old, 0)
    assert _MERGING not in lake.table(name).properties
    left = report.metrics["unsupported"]
    assert [(each["spec_ids"], each["position_delete_files"]) for each in left] == ([([0], 2)] if version == 2 else [])
    # a delete of the whole table also applies to that spec
    for number in range(2):
        lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD id_bucket_2") if not number else None
        change(lake, name, ["id"], f"SELECT id FROM range({number}, 4)")
    before = spark_rows(lake, name)
    with pytest.raises(UnsupportedError, match="partition spec 0 are partitioned by a column that was dropped"):
        run(lake, name)
    assert (spark_rows(lake, name), manifests_of_spec(lake, name, 0)) == (before, old)


@pytest.mark.soak
def test_buckets_of_a_dropped_column_are_converted(lake: Lake) -> None:
    name = by_region(lake, 2, "bucket(4, region)")
    drop_region(lake, name)
    before = spark_rows(lake, name)
    report = run(lake, name)
    assert (report.metrics["unsupported"], report.metrics["delete_files_superseded"]) == ([], 2)
    assert spark_rows(lake, name) == before == pyiceberg_rows(lake, name)
