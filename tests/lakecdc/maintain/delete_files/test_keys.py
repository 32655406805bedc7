"""Keys of every type, and schema changes after data or deletes were written."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from lakecdc import changes
from lakecdc.contract.errors import UnsupportedError
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import int_array, jvm
from lakecdc.iceberg.staging import stage_rows
from lakecdc.iceberg.table import DELETES_SHARED
from lakecdc.maintain.compact import compact_data_files
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.java_tables import JavaTable
from tests.lakecdc.maintain.delete_files.support import (
    change,
    convert,
    create,
    insert,
    pyiceberg_rows,
    run,
    spark_rows,
)
from tests.lakecdc.maintain.support import count
from tests.on_demand import on_demand
from tests.versions import V2, V3

COLUMNS = (
    "n int, s string, b binary, i int, l bigint, dec decimal(12, 2), d date, ts timestamp, tz timestamp_ntz, "
    "flag boolean"
)
ROWS = """
    SELECT * FROM VALUES
    (0, 'Zürich €', X'00FF', 1, 10000000000, 1.50BD, DATE'2024-02-29', TIMESTAMP'2024-02-29 23:59:59.999999',
     TIMESTAMP_NTZ'1969-12-31 00:00:00', true),
    (1, '', X'', 2, -1, -1.50BD, DATE'1969-12-31', TIMESTAMP'1969-12-31 23:59:59', TIMESTAMP_NTZ'2024-01-01 00:00:00',
     false),
    (2, '日本', X'00', 3, 0, 0.00BD, DATE'0001-01-01', TIMESTAMP'2024-01-01 00:00:00',
     TIMESTAMP_NTZ'2024-01-01 00:00:00.000001', NULL),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, 'zürich €', X'FF00', 4, 5, 9999999999.99BD, DATE'2024-03-01', TIMESTAMP'2024-02-29 23:59:59.999998',
     TIMESTAMP_NTZ'1969-12-31 00:00:01', NULL)
    AS t(n, s, b, i, l, dec, d, ts, tz, flag)
"""


@V3
def test_keys_of_many_types_and_several_key_sets_are_converted(lake: Lake, version: int) -> None:
    name = create(lake, COLUMNS, version)
    insert(lake, name, ROWS)
    change(lake, name, ["s", "dec"], f"SELECT s, dec FROM ({ROWS}) WHERE n IN (1, 3)")
    change(lake, name, ["flag"], "SELECT true AS flag")
    columns = ("s", "b", "i", "l", "dec", "d", "ts", "tz")
    # one row per column with no other value, so that only its key set can delete it
    alone = [
        ", ".join(["n", *(f"IF({c == column}, {c}, NULL) AS {c}" for c in (*columns, "flag"))]) for column in columns
    ]
    insert(lake, name, " UNION ALL ".join(f"SELECT {row} FROM ({ROWS}) WHERE n = 0" for row in alone))
    for column in columns:
        change(lake, name, [column], f"SELECT {column} FROM ({ROWS}) WHERE n = 0")
    report = convert(lake, name)
    assert [row[0] for row in pyiceberg_rows(lake, name)] == [2, 4]
    assert report.metrics["positions"] == 3 + len(columns)


@pytest.mark.soak
def test_nulls_and_empty_values_are_different_keys(lake: Lake) -> None:
    name = create(lake, COLUMNS, 2)
    insert(lake, name, ROWS)
    change(lake, name, ["s"], "SELECT CAST(NULL AS string) AS s")
    change(lake, name, ["b"], "SELECT X'' AS b")
    convert(lake, name)
    assert [row[0] for row in spark_rows(lake, name)] == [0, 2, 4]


@V3
def test_renamed_widened_and_moved_keys_are_converted(lake: Lake, version: int) -> None:
    name = create(lake, "v string, id int, `Ort ``Nr.``` int", version)
    insert(lake, name, "SELECT concat('a', id) AS v, CAST(id AS int) AS id, 7 AS `Ort ``Nr.``` FROM range(10)")
    change(lake, name, ["id", "Ort `Nr.`"], "SELECT CAST(id AS int) AS id, 7 AS `Ort ``Nr.``` FROM range(3)")
    lake.sql(f"ALTER TABLE lake.{name} RENAME COLUMN id TO `key`")
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN `key` TYPE bigint")
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN `key` FIRST")
    # the old name returns for another column: names must not matter
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN id int")
    insert(lake, name, "SELECT id AS `key`, 'b' AS v, 7 AS `Ort ``Nr.```, 1 AS id FROM range(8, 12)")
    change(lake, name, ["key", "Ort `Nr.`"], "SELECT id AS `key`, 7 AS `Ort ``Nr.``` FROM range(9, 11)")
    convert(lake, name)
    assert sorted(row[0] for row in pyiceberg_rows(lake, name)) == [3, 4, 5, 6, 7, 8, 8, 11]


def test_rows_deleted_before_their_key_was_widened_stay_deleted(lake: Lake) -> None:
    name = create(lake, "id int, v string", 2)
    insert(lake, name, "SELECT CAST(id AS int) AS id, concat('a', id) AS v FROM range(5)")
    change(lake, name, ["id"], "SELECT CAST(id AS int) AS id FROM range(2)")
    narrow = lake.table(name).head()
    assert narrow
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN id TYPE bigint")
    insert(lake, name, "SELECT id, concat('a', id) AS v FROM range(5, 8)")
    lake.spark.conf.unset(DELETES_SHARED)
    left = [(number, f"a{number}") for number in range(2, 8)]
    # Iceberg's cache lives as long as the query that filled it
    as_int = lake.sql(f"SELECT * FROM lake.{name} VERSION AS OF {narrow.id}")
    assert len(as_int.collect()) == 3
    assert sorted(map(tuple, lake.table(name).read().collect())) == left
    lake.spark.conf.unset(DELETES_SHARED)
    inserted = changes.read(lake.spark, f"lake.{name}", since=narrow.id)
    assert sorted(row.id for row in inserted.collect()) == [5, 6, 7]
    lake.spark.conf.unset(DELETES_SHARED)
    spec = parse_spec(lake.spec("compact_data_files", name, options={"min_input_files": 2}))
    assert compact_data_files(lake.table(name), spec).outcome == "done"
    assert as_int.count() == 3
    assert sorted(lake.duckdb_rows(name)) == left


def test_a_key_column_missing_in_old_files_is_null(lake: Lake) -> None:
    name = create(lake, "id bigint", 2)
    insert(lake, name, "SELECT id FROM range(4)")
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN tenant string")
    insert(lake, name, "SELECT id, 'x' AS tenant FROM range(4)")
    change(lake, name, ["id", "tenant"], "SELECT 1L AS id, CAST(NULL AS string) AS tenant UNION ALL SELECT 2L, 'x'")
    convert(lake, name)
    assert sorted(row[0] for row in pyiceberg_rows(lake, name)) == [0, 0, 1, 2, 3, 3]


def test_a_key_column_missing_in_old_files_has_its_default(lake: Lake, by_iceberg: list[int]) -> None:
    table = JavaTable(lake, {"id": "int"}, 3)
    table.append(*({"id": number} for number in range(3)))
    table.add_column_with_default("tenant", "string", "x")
    table.append({"id": 0, "tenant": "y"}, {"id": 1, "tenant": "x"}, {"id": 2, "tenant": None})
    table.delete({"id": 1, "tenant": "x"}, {"id": 0, "tenant": "y"}, {"id": 2, "tenant": None})
    report = convert(lake, table.name, readers=("pyiceberg",))
    assert pyiceberg_rows(lake, table.name) == [(0, "x"), (2, "x")]
    assert (report.metrics["positions"], by_iceberg) == (4, [])


@V2
def test_uuid_and_fixed_keys_are_converted(lake: Lake, version: int, by_iceberg: list[int]) -> None:
    table = JavaTable(lake, {"id": "int", "u": "uuid", "f": "fixed[3]"}, version)
    low, high = "00000000-0000-4000-8000-00000000000a", "7fffffff-ffff-4fff-bfff-ffffffffffff"
    rows = [(0, low, b"\x00\xff\x00"), (1, high, b"\xff\x00\x00"), (2, None, None), (3, low, b"abc"), (4, high, b"abd")]
    table.append(*({"id": number, "u": u, "f": f} for number, u, f in rows))
    table.delete({"f": b"\xff\x00\x00"})
    table.delete({"u": None})
    table.delete({"u": low, "f": b"abc"}, {"u": high, "f": b"abc"}, {"u": low, "f": None})
    assert convert(lake, table.name, readers=("pyiceberg",)).metrics["positions"] == 3
    assert [row[0] for row in pyiceberg_rows(lake, table.name)] == [0, 4]
    table.delete({"u": low}, {"u": high})
    assert convert(lake, table.name, readers=("pyiceberg",)).metrics["positions"] == 2
    assert (pyiceberg_rows(lake, table.name), by_iceberg) == ([], [])


@pytest.mark.soak
def test_decimal_keys_may_be_widened_between_data_and_deletes(lake: Lake) -> None:
    """Parquet stores each precision differently: as int32, int64 or bytes."""
    name = create(lake, "id int, d decimal(9, 2)", 2)
    for round_, precision in enumerate((9, 18, 38)):
        if round_:
            lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN d TYPE decimal({precision}, 2)")
        kind = f"decimal({precision}, 2)"
        rows = f"SELECT CAST({10 * round_} + id AS int) AS id, CAST(id - 2.5 AS {kind}) AS d FROM range(5)"
        insert(lake, name, rows)
        change(lake, name, ["d"], f"SELECT CAST({round_} - 2.5 AS {kind}) AS d")
    report = convert(lake, name)
    survivors = [10 * file + value for file in range(3) for value in range(5) if value not in range(file, 3)]
    assert sorted(row[0] for row in spark_rows(lake, name)) == survivors
    assert report.metrics["positions"] == 6


@V2
def test_dropped_key_columns_still_delete_rows(lake: Lake, version: int, by_iceberg: list[int]) -> None:
    name = create(lake, "id bigint, old string, v int", version)
    insert(lake, name, "SELECT id, concat('k', id) AS old, 1 AS v FROM range(5)")
    change(lake, name, ["old"], "SELECT 'k3' AS old")
    change(lake, name, ["id", "old"], "SELECT 0L AS id, 'k0' AS old UNION ALL SELECT 1L, 'k0'")
    change(lake, name, ["id"], "SELECT 4L AS id")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN old")
    insert(lake, name, "SELECT id, 1 AS v FROM range(1)")
    convert(lake, name)
    assert ([row[0] for row in pyiceberg_rows(lake, name)], by_iceberg) == ([0, 1, 2], [])


def with_re_added_key(lake: Lake) -> str:
    """Create a table whose key ``k`` is now another column; Spark cannot read it ("multiple fields for name k")."""
    name = create(lake, "id int, k string", 2)
    insert(lake, name, "SELECT CAST(id AS int) AS id, concat('k', id) AS k FROM range(5)")
    change(lake, name, ["k"], "SELECT 'k1' AS k")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN k")
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN k int")
    insert(lake, name, "SELECT 9 AS id, 7 AS k")
    change(lake, name, ["id"], "SELECT 4 AS id")
    return name


def test_a_table_with_a_dropped_and_re_added_key_is_repaired(lake: Lake) -> None:
    name = with_re_added_key(lake)
    with pytest.raises(Py4JJavaError, match="multiple fields for name k"):
        spark_rows(lake, name)
    assert run(lake, name).metrics["positions"] == 2
    rows = [(0, None), (2, None), (3, None), (9, 7)]
    assert spark_rows(lake, name) == pyiceberg_rows(lake, name) == sorted(lake.duckdb_rows(name)) == rows


def test_dropped_keys_that_readers_cannot_apply_are_refused(lake: Lake) -> None:
    namesakes = with_re_added_key(lake)
    change(lake, namesakes, ["k"], "SELECT 7 AS k")
    placed = create(lake, "id bigint, place string", 2, "place")
    insert(lake, placed, "SELECT id, 'north' AS place FROM range(3)")
    change(lake, placed, ["id", "place"], "SELECT 1L AS id, 'north' AS place")
    lake.sql(f"ALTER TABLE lake.{placed} DROP PARTITION FIELD place")
    lake.sql(f"ALTER TABLE lake.{placed} DROP COLUMN place")
    for name, reason in [(namesakes, "a namesake of another key column"), (placed, "a partition column")]:
        with pytest.raises(UnsupportedError, match=f"has been dropped from the table and was {reason}"):
            run(lake, name)
        with pytest.raises(Py4JJavaError):
            spark_rows(lake, name)


@pytest.mark.parametrize("kind", on_demand(("double", "float"), in_ci=("double",)))
def test_floating_point_keys_are_refused_with_the_reason(lake: Lake, kind: str) -> None:
    name = create(lake, f"id bigint, x {kind}", 2)
    insert(lake, name, f"SELECT id, CAST(id AS {kind}) AS x FROM range(5)")
    change(lake, name, ["x"], f"SELECT CAST(1 AS {kind}) AS x")
    before = lake.table(name).head()
    with pytest.raises(UnsupportedError, match=f"has the type {kind}, and engines disagree"):
        run(lake, name)
    assert lake.table(name).head() == before
    assert list(dict(lake.table(name).java.refs())) == ["main"]


@pytest.mark.parametrize(
    ("field", "reason"),
    on_demand([("s.a", "is nested"), ("s", "has the type struct")], in_ci=[("s.a", "is nested")]),
)
def test_nested_keys_are_refused_with_the_reason(lake: Lake, field: str, reason: str) -> None:
    name = create(lake, "id bigint, s struct<a: int>", 2)
    insert(lake, name, "SELECT id, named_struct('a', CAST(id AS int)) AS s FROM range(3)")
    table = lake.table(name)
    # no reader gets as far as the file's content, so any file will do
    (data,) = stage_rows(table, lake.sql("SELECT 1L AS id, named_struct('a', 1) AS s").coalesce(1))
    files = jvm(lake.spark).org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.spec())
    files = files.ofEqualityDeletes(int_array(lake.spark, [table.field_id(field)])).withPath(data.location())
    files = files.withFormat("PARQUET").withFileSizeInBytes(data.fileSizeInBytes()).withRecordCount(1)
    append_changes(table, RowChanges(deletes=[files.build()]), PositionFence(None))
    with pytest.raises(UnsupportedError, match=reason):
        run(lake, name)
    assert count(lake, name, 2) == 1
