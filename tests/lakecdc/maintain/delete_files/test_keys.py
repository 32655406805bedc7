"""Keys of every type, and of schemas that changed after data or deletes were written."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.scan import EqualityDelete, field_types
from lakecdc.maintain.delete_files.plan import refuse_unsupported
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, run, spark_rows

ENGINES = pytest.mark.parametrize("engine", ["exact", "join"])

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


@pytest.mark.parametrize(("version", "engine"), [(2, "exact"), (3, "join")])
def test_keys_of_many_types_and_several_key_sets_in_one_table(lake: Lake, version: int, engine: str) -> None:
    name = create(lake, COLUMNS, version)
    for column, row in [("s", 0), ("b", 0), ("i", 0), ("l", 0), ("dec", 0), ("d", 0), ("ts", 0), ("tz", 0)]:
        # one file per column, so that each key set hits its own copy of the rows
        insert(lake, name, f"SELECT n + 10 * {len(column)} AS n, * EXCEPT (n) FROM ({ROWS})")
        change(lake, name, [column], f"SELECT {column} FROM ({ROWS}) WHERE n = {row}")
    change(lake, name, ["s", "dec"], f"SELECT s, dec FROM ({ROWS}) WHERE n IN (1, 3)")
    change(lake, name, ["flag"], "SELECT true AS flag")
    report = convert(lake, name, engine=engine)
    survivors = {row[0] % 10 for row in spark_rows(lake, name)}
    assert survivors == {2, 4}
    assert report.metrics["positions"] == 24


@ENGINES
def test_nulls_and_empty_values_are_not_the_same_key(lake: Lake, engine: str) -> None:
    name = create(lake, COLUMNS, 2)
    insert(lake, name, ROWS)
    change(lake, name, ["s"], "SELECT CAST(NULL AS string) AS s")
    change(lake, name, ["b"], "SELECT X'' AS b")
    convert(lake, name, engine=engine)
    assert [row[0] for row in spark_rows(lake, name)] == [0, 2, 4]


@pytest.mark.parametrize("version", [2, 3])
@ENGINES
def test_renamed_widened_and_moved_key(lake: Lake, version: int, engine: str) -> None:
    name = create(lake, "v string, id int, `Ort Nr.` int", version)
    insert(lake, name, "SELECT concat('a', id) AS v, CAST(id AS int) AS id, 7 AS `Ort Nr.` FROM range(10)")
    change(lake, name, ["id", "Ort Nr."], "SELECT CAST(id AS int) AS id, 7 AS `Ort Nr.` FROM range(3)")
    lake.sql(f"ALTER TABLE lake.{name} RENAME COLUMN id TO `key`")
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN `key` TYPE bigint")
    lake.sql(f"ALTER TABLE lake.{name} ALTER COLUMN `key` FIRST")
    # the old name comes back for another column: names must play no part
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN id int")
    insert(lake, name, "SELECT id AS `key`, 'b' AS v, 7 AS `Ort Nr.`, 1 AS id FROM range(8, 12)")
    change(lake, name, ["key", "Ort Nr."], "SELECT id AS `key`, 7 AS `Ort Nr.` FROM range(9, 11)")
    convert(lake, name, engine=engine)
    assert sorted(row[0] for row in spark_rows(lake, name)) == [3, 4, 5, 6, 7, 8, 8, 11]


@ENGINES
def test_key_column_that_old_files_do_not_have(lake: Lake, engine: str) -> None:
    name = create(lake, "id bigint", 2)
    insert(lake, name, "SELECT id FROM range(4)")
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN tenant string")
    insert(lake, name, "SELECT id, 'x' AS tenant FROM range(4)")
    change(lake, name, ["id", "tenant"], "SELECT 1L AS id, CAST(NULL AS string) AS tenant UNION ALL SELECT 2L, 'x'")
    convert(lake, name, engine=engine)
    assert sorted(row[0] for row in spark_rows(lake, name)) == [0, 0, 1, 2, 3, 3]


def test_dropped_key_column_is_matched_by_icebergs_reader_only(lake: Lake) -> None:
    name = create(lake, "id bigint, old string, v int", 2)
    insert(lake, name, "SELECT id, concat('k', id) AS old, 1 AS v FROM range(5)")
    change(lake, name, ["old"], "SELECT 'k3' AS old")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN old")
    with pytest.raises(UnsupportedError, match="has been dropped"):
        run(lake, name, engine="join")
    assert convert(lake, name).metrics["engine"] == "exact"
    assert [row[0] for row in spark_rows(lake, name)] == [0, 1, 2, 4]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_floating_key_is_refused_with_the_reason(lake: Lake, kind: str) -> None:
    name = create(lake, f"id bigint, x {kind}", 2)
    insert(lake, name, f"SELECT id, CAST(id AS {kind}) AS x FROM range(5)")
    change(lake, name, ["x"], f"SELECT CAST(1 AS {kind}) AS x")
    before = lake.table(name).head()
    with pytest.raises(UnsupportedError, match=f"has the type {kind}, and engines disagree"):
        run(lake, name)
    assert lake.table(name).head() == before
    assert list(dict(lake.table(name).java.refs())) == ["main"]


def test_nested_key_is_refused_with_the_reason(lake: Lake) -> None:
    name = create(lake, "id bigint, s struct<a: int>", 2)
    table = lake.table(name)
    nested = table.field_id("s.a")
    assert field_types(table, [nested]) == {nested: None}
    for field_id, reason in [(nested, "is nested"), (table.field_id("s"), "has the type struct")]:
        with pytest.raises(UnsupportedError, match=reason):
            refuse_unsupported(table, [EqualityDelete(None, "x", None, 1, 1, (field_id,))])
