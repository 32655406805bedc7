"""Deletes that tasks search themselves, and deletes that they leave to Iceberg's reader."""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, pyiceberg_rows, row_groups
from tests.lakecdc.maintain.support import count


def test_keys_of_plain_types_are_searched_by_tasks(lake: Lake, by_iceberg: list[int]) -> None:
    name = create(
        lake,
        "id bigint, t string, d date, ts timestamp, tz timestamp_ntz, n decimal(12, 2), b boolean, i int",
        3,
        "bucket(2, id)",
        **{"write__parquet__row-group-size-bytes": "2000"},
    )
    values = (
        "id, IF(id % 7 = 0, NULL, concat('k', id % 50)) AS t, date_add(DATE'1960-01-01', cast(id AS int)) AS d, "
        "timestamp_seconds(id) AS ts, cast(timestamp_seconds(id) AS timestamp_ntz) AS tz, "
        "cast(id / 4 AS decimal(12, 2)) AS n, id % 2 = 0 AS b, cast(id % 9 AS int) AS i"
    )
    insert(lake, name, f"SELECT {values} FROM range(3000)")
    assert min(row_groups(lake, name)) > 1
    change(lake, name, ["id"], "SELECT id * 13 AS id FROM range(40)")
    change(lake, name, ["id", "t"], "SELECT id, CAST(NULL AS string) AS t FROM range(0, 100, 7)")
    rest = ["id", "d", "ts", "tz", "n", "b", "i"]
    change(lake, name, rest, f"SELECT {', '.join(rest)} FROM (SELECT {values} FROM range(1000, 1020))")
    deleted = {13 * n for n in range(40)} | set(range(0, 100, 7)) | set(range(1000, 1020))
    report = convert(lake, name)
    assert sorted(row[0] for row in pyiceberg_rows(lake, name)) == sorted(set(range(3000)) - deleted)
    assert (report.metrics["positions"], by_iceberg) == (len(deleted), [])


def test_keys_of_avro_deletes_are_searched_by_tasks(lake: Lake, by_iceberg: list[int]) -> None:
    name = create(lake, "id bigint, v string", 3, "v")
    insert(lake, name, "SELECT id, v FROM range(20) CROSS JOIN (VALUES ('avro'), ('orc'), ('parquet') AS t(v))")
    places = {"parquet": "('parquet'), ('orc')", "orc": "('orc')", "avro": "('avro')"}
    for number, (kind, values) in enumerate(places.items()):
        for setting in ("write.delete.format.default", "write.format.default"):
            lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('{setting}'='{kind}')")
        # the first two of each file were already deleted by the previous file
        keys = f"SELECT id, v FROM range({3 * number}, {3 * number + 5}) CROSS JOIN (VALUES {values} AS t(v))"
        change(lake, name, ["id", "v"], keys)
    report = convert(lake, name)
    assert (report.metrics["positions"], by_iceberg) == (5 + 8 + 5, [])
    assert len(pyiceberg_rows(lake, name)) == 60 - 18


def test_data_files_without_a_key_column_are_searched_by_tasks(lake: Lake, by_iceberg: list[int]) -> None:
    name = create(lake, "id int", 3)
    insert(lake, name, "SELECT cast(id AS int) AS id FROM range(4)")
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN place string")
    insert(lake, name, "SELECT cast(id AS int) AS id, IF(id = 0, NULL, 'x') AS place FROM range(4)")
    # the older file is read with nulls for the column, and widened
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN id TYPE bigint")
    change(lake, name, ["id", "place"], "SELECT * FROM VALUES (0L, NULL), (1L, 'x'), (2L, 'y') AS t(id, place)")
    report = convert(lake, name)
    assert (report.metrics["positions"], by_iceberg) == (3, [])
    assert pyiceberg_rows(lake, name) == sorted([(1, None), (2, None), (2, "x"), (3, None), (3, "x")], key=repr)


@pytest.mark.soak
@pytest.mark.parametrize("version", [2, 3])
def test_data_files_not_named_by_position_deletes_are_converted(lake: Lake, version: int) -> None:
    settings = {"write__delete__mode": "merge-on-read", "write__delete__granularity": "partition"}
    name = create(lake, "id bigint, v string", 2, **settings)
    for value in "abc":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(10)")
    # of two files: a delete file of a single data file has its path in its bounds, and belongs to it alone
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 2 AND v != 'a'")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='{version}')")
    change(lake, name, ["id", "v"], "SELECT 5L AS id, 'a' AS v")
    report = convert(lake, name)
    assert (report.metrics["delete_files_superseded"], count(lake, name, 1)) == (1, 3)
