"""Looking up keys in a table: the bounds that prune its files mean the same in every time zone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lakecdc.ingest.lookup import read_keys
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.test_merge_keys import KEYS


@pytest.fixture(params=["Europe/Berlin", "America/New_York"])
def far_away(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in another time zone than the session, one with summer time."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_keys_of_every_type_are_found(lake: Lake) -> None:
    name = lake.new_name("lookup")
    columns = ", ".join(f"{sql} AS `{key}`" for key, (_, sql) in KEYS.items())
    lake.sql(f"CREATE TABLE lake.{name} USING iceberg AS SELECT id, {columns} FROM range(40)")
    for key in KEYS:
        keys = lake.sql(f"SELECT DISTINCT {KEYS[key][1]} AS `{key}` FROM range(7, 9)")
        found = read_keys(lake.table(name), keys, [key]).select("id").collect()
        expected = set(range(40)) if key == "yes" else {7, 8}
        assert {row["id"] for row in found} == expected, key
