"""Tasks read the same rows as Iceberg's reader, vectorized or not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.iceberg.bulk import CONTENT_FILE, FILE_SCAN_TASK, java_calls
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.file_tasks import position_deletes_of
from lakecdc.iceberg.scan import scan_tasks
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.names import ROW_ID, UPDATED
from lakecdc.reader.data_files import FileRows, refusal
from lakecdc.reader.projection import read_columns
from tests.conftest import CATALOG, Lake

_VECTORIZED = "spark.sql.iceberg.vectorization.enabled"


def in_tasks(table: IcebergTable, *, lineage: bool = False, constants: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table as tasks read them."""
    assert refusal(table) is None
    head, calls = table.refresh().head(), java_calls(table.spark)
    assert head is not None
    tasks, file = scan_tasks(table, head.id), calls.method(FILE_SCAN_TASK, "file")(calls.it)
    facts = ("location", "firstRowId", "dataSequenceNumber", "recordCount")
    rows = calls.rows(tasks, *(calls.method(CONTENT_FILE, name)(file) for name in facts))
    read_rows, names = list[dict[str, Any]](), ("location", "first_row_id", "sequence_number", "records")
    for known, deletes in zip(rows, position_deletes_of(calls, tasks), strict=True):
        file_row = dict(zip(names, known, strict=True)) | {"constants": constants}
        file_row["deletes"] = [one.for_tasks for one in deletes]
        columns, mapping = read_columns(table.schema_fields), table.properties.get("schema.name-mapping.default")
        reading = FileRows(file_row, columns, storage_properties(table), lineage=lineage, name_mapping=mapping)
        for rows_of_file in reading:
            rows_of_file.validate(full=True)
            read_rows += rows_of_file.to_pylist()
        assert reading.rows + reading.deleted == file_row["records"]
    return sorted(read_rows, key=lambda row: row["id"])


@pytest.fixture
def by_spark(lake: Lake) -> Iterator[Any]:
    """Yield a function that reads a table with Spark and checks that vectorized and plain reads agree."""

    def read(name: str, columns: str = "*") -> list[dict[str, Any]]:
        ways = []
        for vectorized in ("true", "false"):
            lake.spark.conf.set(_VECTORIZED, vectorized)
            ways.append(lake.sql(f"SELECT {columns} FROM {CATALOG}.{name} ORDER BY id").toArrow().to_pylist())
        assert ways[0] == ways[1]
        return ways[0]

    yield read
    lake.spark.conf.unset(_VECTORIZED)


def test_files_of_older_schemas_with_deletes_and_lineage_are_read_as_by_spark(lake: Lake, by_spark: Any) -> None:
    name = lake.new_name()
    place = f"{CATALOG}.{name}"
    lake.sql(
        f"CREATE TABLE {place} (id bigint NOT NULL, a int, b float, c decimal(9, 2), gone string, t timestamp, "
        "n timestamp_ntz, d date, o binary, s struct<x: int, y: string, gone: int>, "
        "l array<struct<p: int, q: string>>, m map<string, struct<v: float>>) USING iceberg "
        "TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read')"
    )
    rows = (
        "SELECT id, IF(id % 5 = 0, null, int(id)) a, float(id) / 3 b, decimal(id) / 7 c, 'gone' gone, "
        "timestamp_millis(id * 1234567890123) t, timestamp_ntz'2020-01-01 00:00:00.000001' n, date'2020-01-01' d, "
        "binary(string(id)) o, IF(id % 3 = 0, null, named_struct('x', int(id), 'y', string(id), 'gone', 1)) s, "
        "IF(id % 7 = 0, null, array(named_struct('p', int(id), 'q', 'q'), null)) l, "
        "IF(id % 4 = 0, null, map('k', named_struct('v', float(1.1)), 'n', null)) m"
    )
    lake.sql(f"INSERT INTO {place} {rows} FROM range(0, 60, 1, 2)")
    lake.sql(f"DELETE FROM {place} WHERE id IN (3, 4, 40)")
    for change in (
        "DROP COLUMN gone",
        "RENAME COLUMN a TO gone",
        "ALTER COLUMN gone TYPE bigint",
        "ALTER COLUMN b TYPE double",
        "ALTER COLUMN c TYPE decimal(20, 2)",
        "ADD COLUMN a string",
        "DROP COLUMN s.gone",
        "RENAME COLUMN s.x TO z",
        "ALTER COLUMN s.z TYPE bigint",
        "ADD COLUMN s.x double",
        "ALTER COLUMN l.element.p TYPE bigint",
        "DROP COLUMN l.element.q",
        "ADD COLUMN m.value.w array<int>",
        "ALTER COLUMN m.value.v TYPE double",
        "ALTER COLUMN t FIRST",
    ):
        lake.sql(f"ALTER TABLE {place} {change}")
    assert in_tasks(lake.table(name)) == by_spark(name)
    lake.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('format-version'='3', 'write.update.mode'='copy-on-write')")
    lake.sql(f"INSERT INTO {place} SELECT t, id + 100, gone, b, c, n, d, o, s, l, m, 'new' a FROM {place} WHERE id < 9")
    lake.sql(f"UPDATE {place} SET a = 'updated' WHERE id = 101")
    lake.sql(f"DELETE FROM {place} WHERE id IN (5, 41, 102)")
    table = lake.table(name)
    update = table.java.updateSchema()
    java: Any = lake.spark._jvm
    types, literal = java.org.apache.iceberg.types.Types, java.org.apache.iceberg.expressions.Expressions.lit
    update.addColumn("added", types.StringType.get(), "some", literal("é"))
    update.addColumn("s", "added", types.LongType.get(), "some", literal(7))
    update.commit()
    lake.sql(f"REFRESH TABLE {place}")
    ours = in_tasks(lake.table(name), lineage=True)
    assert ours == by_spark(name, f"*, {ROW_ID}, {UPDATED}")
    assert len({row[ROW_ID] for row in ours}) == len(ours) == 57 + 7 - 3 and {row["added"] for row in ours} == {"é"}


def test_files_of_other_writers_are_read_as_by_spark(lake: Lake, by_spark: Any, tmp_path: Path) -> None:
    name = lake.new_name()
    moment = datetime(1899, 12, 31, 23, 59, 59, 999_999)
    struct = pa.struct({"y": pa.string(), "x": pa.int32()})
    columns: dict[str, tuple[str, Any]] = {
        "id": ("bigint", pa.array([1, 2], pa.int32())),
        "tiny": ("int", pa.array([-5, None], pa.int8())),
        "small": ("bigint", pa.array([-500, None], pa.int16())),
        "f": ("double", pa.array([1.1, None], pa.float32())),
        "text": ("string", pa.array(["a", None], pa.large_string())),
        "word": ("string", pa.array(["a", "a"]).dictionary_encode()),
        "octets": ("binary", pa.array([b"a", None], pa.large_binary())),
        "dec": ("decimal(20, 2)", pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))),
        "at": ("timestamp", pa.array([moment, None], pa.timestamp("us", "Europe/Paris"))),
        "s": ("struct<x: bigint, y: string>", pa.array([{"y": "b", "x": 1}, None], struct)),
        "l": ("array<string>", pa.array([["a", None], None], pa.list_(pa.string()))),
        "m": ("map<string, bigint>", pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32()))),
    }
    rows = pa.table({key: array for key, (_, array) in columns.items()})
    pq.write_table(rows, tmp_path / "a.parquet", use_compliant_nested_type=False)
    types = ", ".join(f"{key} {kind}" for key, (kind, _) in columns.items())
    lake.sql(f"CREATE TABLE {CATALOG}.{name} ({types}) USING iceberg")
    add = f"CALL {CATALOG}.system.add_files(table => '{name}', source_table => '`parquet`.`{{}}`')"
    lake.sql(add.format(tmp_path / "a.parquet"))
    lake.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    others = lake.sql(f"SELECT * FROM {CATALOG}.{name}").drop("l", "word").selectExpr("id + 2 AS id", "* EXCEPT (id)")
    others.coalesce(1).write.parquet(str(tmp_path / "spark"))
    lake.spark.conf.unset("spark.sql.parquet.outputTimestampType")
    lake.sql(add.format(tmp_path / "spark"))
    ours = in_tasks(lake.table(name))
    assert ours == by_spark(name) and [row["at"] for row in ours] == [moment.replace(tzinfo=UTC), None] * 2


def test_partition_values_missing_in_files_are_read(lake: Lake, by_spark: Any, tmp_path: Path) -> None:
    name, place = lake.new_name(), tmp_path / "days"
    lake.sql(f"CREATE TABLE {CATALOG}.{name} (id bigint, day date) USING iceberg PARTITIONED BY (day)")
    days = lake.sql("SELECT id, date'2026-03-01' AS day FROM range(3)")
    days.coalesce(1).write.partitionBy("day").parquet(str(place))
    lake.sql(f"CALL {CATALOG}.system.add_files(table => '{name}', source_table => '`parquet`.`{place}`')")
    assert in_tasks(lake.table(name), constants='{"2": "2026-03-01"}') == by_spark(name)


def test_avro_files_are_read_as_by_spark(lake: Lake, by_spark: Any) -> None:
    name = lake.new_name()
    place = f"{CATALOG}.{name}"
    lake.sql(
        f"CREATE TABLE {place} (id bigint NOT NULL, a int, b boolean, f float, g double, c decimal(9, 2), "
        "c2 decimal(9, 2), c3 decimal(38, 3), t timestamp, n timestamp_ntz, d date, o binary, v string, "
        "s struct<x: int, y: array<string>>, l array<struct<p: int, q: string>>, m map<string, struct<v: float>>, "
        "k map<int, date>) USING iceberg TBLPROPERTIES ('format-version'='3', 'write.format.default'='avro')"
    )
    optional = {
        "a": "int(-id)",
        "b": "id % 2 = 0",
        "f": "float(id) / 3",
        "g": "IF(id % 7 = 2, double('-Infinity'), -id / 3D)",
        "c": "decimal(id) / 7",
        "c2": "-decimal(id) / 7",
        "c3": "12345678901234567890123456789012345.678BD",
        "t": "timestamp_micros(id * 12345678901234)",
        "n": "timestamp_ntz'1899-12-31 23:59:59.999999'",
        "d": "date'1969-12-31'",
        "o": "binary(string(id))",
        "v": "concat('é', id)",
        "s": "named_struct('x', int(id), 'y', array(string(id), null))",
        "l": "array(named_struct('p', int(id), 'q', null), null)",
        "m": "map('k', named_struct('v', float(1.1)), 'n', null)",
        "k": "map(int(id), date'2020-01-01', 7000, null)",
    }
    values = ", ".join(f"IF(id % 5 = {n % 5}, null, {value}) {key}" for n, (key, value) in enumerate(optional.items()))
    lake.sql(f"INSERT INTO {place} SELECT /*+ COALESCE(1) */ id, {values} FROM range(5000)")
    for change in ("DROP COLUMN b", "ALTER COLUMN a TYPE bigint", "RENAME COLUMN v TO b", "ADD COLUMN v string"):
        lake.sql(f"ALTER TABLE {place} {change}")
    lake.sql(f"DELETE FROM {place} WHERE id IN (7, 4000)")
    ours = in_tasks(lake.table(name), lineage=True)
    assert ours == by_spark(name, f"*, {ROW_ID}, {UPDATED}") and len(ours) == 4998
