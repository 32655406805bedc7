"""The literals that bound a merge's join have the same meaning in Spark as the keys they come from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakecdc.contract.target import Target
from lakecdc.ingest.apply.modes import apply_rows
from lakecdc.ingest.apply.publish import following
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.tables import prepare
from lakecdc.metadata.positions import Position, nearest_carrier
from tests.conftest import Lake
from tests.on_demand import on_demand

# SQL of a key, computed from a number
KEYS = {
    "s": ("string", "concat('key ''', id)"),
    "dec": ("decimal(12,3)", "CAST(id / 8 AS decimal(12,3))"),
    "day": ("date", "date_add(DATE '0001-01-01', CAST(id AS int))"),
    "at": ("timestamp", "timestamp_micros(1711846800000000 + id * 1800000001)"),
    "local": ("timestamp_ntz", "CAST(timestamp_micros(1711846800000000 + id * 1800000001) AS timestamp_ntz)"),
    "b": ("binary", "CAST(concat('x', id) AS binary)"),
    "yes": ("boolean", "id % 2 = 0"),
    "dotted.name": ("int", "CAST(id AS int)"),
}
FIRST, SECOND = ["s", "dec", "day", "at"], ["local", "b", "yes", "dotted.name"]


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this process into another time zone than the session, one with summer time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize("columns", on_demand((FIRST, SECOND), in_ci=(FIRST,)))
def test_few_and_many_keys_of_every_type_are_merged(lake: Lake, columns: list[str]) -> None:
    target = Target(lake.new_name("keys"), tuple(columns), mode="merge")
    table, number = None, 0
    for number, (keys, value) in enumerate([(600, "old"), (500, "many"), (4, "few")]):
        batch = make(lake, target, number, keys, value)
        table, _ = prepare(lake.spark, "lake", table, batch)
        carrier = nearest_carrier((s.id, s.summary) for s in table.ancestors())
        assert batch.rows is not None
        position = following(batch.position, None, f"{number:04d}")
        batch = replace(batch, rows=Rows(batch.rows.frame, folded=True, keys=keys))
        apply_rows("merge", table, batch, position, carrier.text if carrier else None)
        table.refresh()
    counts = dict(lake.sql(f"SELECT v, count(*) FROM lake.{target.table} GROUP BY v").collect())
    assert counts == {"old": 100, "many": 496, "few": 4}


def make(lake: Lake, target: Target, number: int, keys: int, value: str) -> Batch:
    key = ", ".join(f"{KEYS[name][1]} AS `{name}`" for name in target.key)
    changes = lake.sql(
        f"SELECT 'u' op, struct({key}) key, struct({key}, '{value}' AS v) row, "
        f"'{number:04d}' order, current_timestamp() source_time FROM range({keys})"
    )
    columns = (*[Column(name, KEYS[name][0], True) for name in target.key], Column("v", "string"))
    return Batch(target, target.key, columns, Rows(changes), Position("test", "one", {"place": number}))
