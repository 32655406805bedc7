"""Merged rows are those of a plain model, however events are cut, delayed and doubled."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.merging import Merge, MergeGroup
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.ingest.change import Column
from lakecdc.ingest.merging.combine import Rules, combine, contributions_of_events, contributions_of_rows
from tests.conftest import Lake
from tests.lakecdc.ingest.merging.model import TABLES, Event, arrivals, history, merged_rows

COLUMNS = (
    *(Column("id", "bigint", True), Column("a", "int"), Column("b", "string"), Column("version", "int")),
    Column("flag", "boolean"),
)
NAMES = tuple(c.name for c in COLUMNS if c.name != "id")
_ROW = "struct<id: bigint, a: int, b: string, version: int, flag: boolean>"
_EVENTS = (
    f"op string, key struct<id: bigint>, row {_ROW}, open array<string>, old_key struct<id: bigint>, order string, "
    "source_time timestamp, source_table string"
)
SETTINGS = {
    "last": Merge(),
    "last_non_null": Merge(default="last_non_null"),
    "first_row": Merge(engine="first_row"),
    "each": Merge(columns={"a": "max", "b": "first_non_null", "version": "min", "flag": "bool_or"}),
    "each_else": Merge(columns={"a": "first", "b": "last_non_null", "flag": "bool_and"}, deletes="ignore"),
    "sequence": Merge(groups=(MergeGroup(("a", "b"), "version"),)),
    "source_tables": Merge(
        groups=(MergeGroup(("a",), source_table=TABLES[0]), MergeGroup(("b",), source_table=TABLES[1]))
    ),
}


def frame_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    rows = [
        (e.op, (e.key,), (e.key, *(e.row[n] for n in NAMES)) if e.row else None, list(e.open) or None, None)
        + (e.order, None, e.source_table)
        for e in events
    ]
    return spark.createDataFrame(rows, _EVENTS)


def as_stored(combined: DataFrame, op: str) -> DataFrame:
    """Return rows as the table, or that of its remembered deletes, would have them."""
    own = F.col("order").alias(ORDER_COLUMN), F.col("source_time").alias(TIME_COLUMN)
    return combined.where(F.col("op") == op).select("row.*", *own)


@pytest.mark.parametrize("late", [True, pytest.param(False, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_random_history(lake: Lake, name: str, late: bool) -> None:
    merge, rng, spark = SETTINGS[name], random.Random(f"{name}{late}"), lake.spark
    tables = TABLES if merge.by_source_table else TABLES[:1]
    # what is left out is told by the event before, which a sequence may place behind
    events = history(rng, 60, 400, tables, leaves_out=not any(group.sequence for group in merge.groups))
    rules, state, remembered = Rules(merge, COLUMNS, ("id",)), None, None
    for batch in arrivals(rng, events, 3, late=late):
        contributions = contributions_of_events(frame_of(spark, batch), rules)
        if state is not None and remembered is not None:
            contributions = contributions.unionByName(contributions_of_rows(state, rules))
            contributions = contributions.unionByName(contributions_of_rows(remembered, rules, remembered=True))
        combined = combine(contributions, rules, left_out=["b"]).localCheckpoint()
        state = as_stored(combined, "u")
        remembered = as_stored(combined, "d")
    assert state is not None
    assert _rows(state) == merged_rows(events, merge, NAMES)


def _rows(state: DataFrame) -> dict[int, dict[str, Any]]:
    return {row["id"]: {name: row[name] for name in NAMES} for row in state.collect()}
