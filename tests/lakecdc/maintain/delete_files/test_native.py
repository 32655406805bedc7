"""What the native engine reads by itself, and what it leaves to the join."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.key_search import match
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, pyiceberg_rows, row_groups
from tests.lakecdc.maintain.support import count


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many data files each join was asked to match."""
    found, real = [], match.hits_of

    def hits_of(*arguments: Any) -> Any:
        found.append(len(arguments[-1]))
        return real(*arguments)

    monkeypatch.setattr(match, "hits_of", hits_of)
    return found


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many delete files Iceberg's reader was asked to read, each time."""
    found, real = [], match.keys_of_files

    def keys_of_files(*arguments: Any) -> Any:
        found.append(len(arguments[-1]))
        return real(*arguments)

    monkeypatch.setattr(match, "keys_of_files", keys_of_files)
    return found


def test_plain_keys_are_not_joined(lake: Lake, joined: list[int], left: list[int]) -> None:
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
    gone = {13 * n for n in range(40)} | set(range(0, 100, 7)) | set(range(1000, 1020))
    report = convert(lake, name, engine="native")
    assert sorted(row[0] for row in pyiceberg_rows(lake, name)) == sorted(set(range(3000)) - gone)
    assert (report.metrics["engine"], report.metrics["positions"], joined, left) == ("native", len(gone), [], [])


def test_delete_files_of_other_formats_are_read_by_iceberg(lake: Lake, left: list[int]) -> None:
    name = create(lake, "id bigint, v string", 3)
    insert(lake, name, "SELECT id, concat('v', id) AS v FROM range(20)")
    for number, kind in enumerate(("parquet", "avro", "parquet", "orc")):
        lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.delete.format.default'='{kind}')")
        lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.format.default'='{kind}')")
        # the first two of each file were deleted by the one before as well
        change(lake, name, ["id"], f"SELECT id FROM range({3 * number}, {3 * number + 5})")
    report = convert(lake, name, engine="native")
    assert (report.metrics["positions"], report.metrics["equality_deletes"], left) == (14, 20, [2])
    assert [row[0] for row in pyiceberg_rows(lake, name)] == sorted(range(14, 20))


def test_files_without_the_column_are_joined_and_the_others_are_not(lake: Lake, joined: list[int]) -> None:
    name = create(lake, "id int", 3)
    insert(lake, name, "SELECT cast(id AS int) AS id FROM range(4)")
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN place string")
    insert(lake, name, "SELECT cast(id AS int) AS id, IF(id = 0, NULL, 'x') AS place FROM range(4)")
    # the older file is read with nulls in the place of the column, and widened
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN id TYPE bigint")
    change(lake, name, ["id", "place"], "SELECT * FROM VALUES (0L, NULL), (1L, 'x'), (2L, 'y') AS t(id, place)")
    report = convert(lake, name, engine="native")
    assert (report.metrics["positions"], joined) == (3, [1])
    assert pyiceberg_rows(lake, name) == sorted([(1, None), (2, None), (2, "x"), (3, None), (3, "x")], key=repr)


@pytest.mark.soak
@pytest.mark.parametrize("version", [2, 3])
def test_data_files_that_the_position_deletes_of_their_partition_do_not_name(lake: Lake, version: int) -> None:
    settings = {"write__delete__mode": "merge-on-read", "write__delete__granularity": "partition"}
    name = create(lake, "id bigint, v string", 2, **settings)
    for value in "abc":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(10)")
    # of two files: one that names a single file has its path in its bounds, and belongs to that alone
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 2 AND v != 'a'")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='{version}')")
    change(lake, name, ["id", "v"], "SELECT 5L AS id, 'a' AS v")
    report = convert(lake, name, engine="native")
    assert (report.metrics["delete_files_superseded"], count(lake, name, 1)) == (1, 3)
