"""Key lookups in a table: bounds mean the same in every time zone, and names are the present ones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import functions as F

from lakecdc.iceberg.definition import rename_columns
from lakecdc.ingest.lookup import read_keys
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.test_merge_keys import FIRST, KEYS, SECOND
from tests.on_demand import on_demand


@pytest.fixture(params=on_demand(("Europe/Berlin", "America/New_York"), in_ci=("Europe/Berlin",)))
def far_away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this process into another time zone than the session, one with summer time."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize("of", on_demand((FIRST, SECOND), in_ci=(SECOND,)))
def test_keys_of_every_type_match(lake: Lake, of: list[str]) -> None:
    name = lake.new_name("lookup")
    columns = ", ".join(f"{sql} AS `{key}`" for key, (_, sql) in KEYS.items())
    lake.sql(f"CREATE TABLE lake.{name} USING iceberg AS SELECT id, {columns} FROM range(40)")
    for key in of:
        keys = lake.sql(f"SELECT DISTINCT {KEYS[key][1]} AS `{key}` FROM range(7, 9)")
        rows = read_keys(lake.table(name), keys, [key]).select("id").collect()
        expected = set(range(40)) if key == "yes" else {7, 8}
        assert {row["id"] for row in rows} == expected, key


@pytest.mark.parametrize("names", on_demand([{"id": "nr"}, {"id": "n", "n": "id"}], in_ci=[{"id": "n", "n": "id"}]))
def test_rows_of_a_snapshot_match_under_present_names(lake: Lake, names: dict[str, str]) -> None:
    name = lake.new_name("renamed")
    lake.sql(f"CREATE TABLE lake.{name} (id INT, n INT) USING iceberg PARTITIONED BY (bucket(4, id))")
    lake.sql(f"INSERT INTO lake.{name} SELECT id, id + 100 FROM range(20)")
    table = lake.table(name)
    first = table.head()
    lake.sql(f"INSERT INTO lake.{name} VALUES (7, 0)")
    rename_columns(table.refresh(), names, {})
    key = names["id"]
    keys = lake.spark.range(20).select(F.col("id").cast("int").alias(key)).where(f"{key} IN (7, 9)")
    assert first is not None
    rows = read_keys(table, keys, [key], first.id).select(key, names.get("n", "n")).collect()
    assert sorted(tuple(row) for row in rows) == [(7, 107), (9, 109)]
