"""A batch that is running during an erasure does not restore erased rows."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import TableReport
from lakecdc.erase.job import erase_rows
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.maintain.rollback import state_beside
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, Loads, PlainHistory
from tests.lakecdc.ingest.histories import PLACEHOLDER
from tests.lakecdc.maintain.support import meanwhile, run
from tests.on_demand import on_demand

ERASED = 7


@pytest.mark.parametrize(
    ("has_history", "moment"),
    on_demand([(False, "before_commit"), (True, "history_before_commit")], in_ci=[(True, "history_before_commit")]),
)
def test_late_events_of_a_staged_batch_are_dropped(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_history: bool, moment: str
) -> None:
    name, reports = lake.new_name("beside"), list[TableReport]()
    log = f"{name}_history"
    feed = Feed(lake, tmp_path, {"history_table": log} if has_history else {}, table=name)
    source = PlainHistory(random.Random(11))
    for key in (1, ERASED):
        source.insert(key)
    source.update(ERASED, touch_doc=True)
    source.insert(2)
    late = source.events.pop(2)
    feed.take(source.events)
    source.insert(3)
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {ERASED}L AS id")
    given = {"keys_table": f"{name}_keys", "history_tables": {name: log} if has_history else {}}

    meanwhile(monkeypatch, moment, lambda: reports.append(run(lake, erase_rows, name, **given)))
    feed.take([late, source.events[-1]])
    # the erasure finds the key in the staged files
    assert [report.outcome for report in reports] == ["failed"]
    tables = [name, log] if has_history else [name]
    assert [feed.rows(table, "id") for table in tables] == [[(1,), (2,), (3,)]] * len(tables)
    assert run(lake, erase_rows, name, **given).metrics["files_with_keys"] == 0

    # a row inserted again at the source is inserted again in the table
    del source.rows[ERASED]
    source.insert(ERASED)
    feed.take(source.events[-1:])
    assert [(ERASED,) in feed.rows(table, "id") for table in tables] == [True] * len(tables)


@pytest.mark.parametrize("merge", [None, {"default": "last_non_null"}], ids=["completed", "merged"])
def test_values_read_before_an_erasure_are_not_written_back(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: dict[str, str] | None
) -> None:
    name, reports = lake.new_name("beside"), list[TableReport]()
    feed = Feed(lake, tmp_path, {"merge": merge} if merge else {}, name, options={"max_quarantined_fraction": 1.0})
    source = PlainHistory(random.Random(11))
    for key in (1, ERASED):
        source.insert(key)
    feed.take(source.events)
    applied = len(source.events)
    for key in (1, ERASED):
        source.update(key, touch_doc=False)
    updates = source.events[applied:]
    for event in updates:
        event["value"]["after"]["name"] = None if merge else PLACEHOLDER
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {ERASED}L AS id")
    erasure = partial(run, lake, erase_rows, name, keys_table=f"{name}_keys")
    meanwhile(monkeypatch, "before_staging", lambda: reports.append(erasure()))
    feed.take(updates)
    assert [report.outcome for report in reports] == ["done"]
    # the update is quarantined: no row has the values it omits
    assert [row[0] for row in feed.rows()] == [1]
    assert feed.rows()[0][1] == source.events[0]["value"]["after"]["name"]


def test_an_interrupted_batch_is_neither_split_nor_applied_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(lake)
    name, log = loads.target.table, loads.log
    loads.feed(loads.batch(1, {1: "a", ERASED: "a"}))
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {ERASED}L AS id")

    def interrupted(moment: str, batch: Batch) -> TableReport:
        with monkeypatch.context() as patch:
            meanwhile(patch, moment, lambda: loads.feed(batch, interrupted=True))
            return run(lake, erase_rows, name, keys_table=f"{name}_keys", history_tables={name: log})

    # before the history table is rewritten: it would lack rows of the table once ingestion continues
    news = in_order(loads.batch(2, {ERASED: "b"}, full_load=False))
    with pytest.raises(InputError, match="a batch that is not yet in the table"):
        interrupted("erase_before_commit", news)
    assert [row[1:3] for row in loads.rows()] == [(1, "a"), (ERASED, "a"), (ERASED, "b")]
    loads.feed(news)
    # and after that: the table is rewritten as well, at the same position
    further = in_order(loads.batch(3, {1: "c"}, full_load=False))
    assert interrupted("erase_before_entries", further).metrics["files_with_keys"] == 0
    with pytest.raises(InputError, match="a batch that is not yet in the table"):
        run(lake, erase_rows, name, keys_table=f"{name}_keys", history_tables={name: log})
    loads.feed(further)
    assert [row[1:3] for row in loads.rows()] == [(1, "a"), (1, "c")]
    assert lake.duckdb_rows(name, "id, v") == [(1, "c")]
    table, history = lake.table(name), lake.table(log)
    newest, before = (list(table.ancestors())[n:] for n in (0, 1))
    assert state_beside(history, table, newest) == history.head()
    assert state_beside(history, table, before) is None, "the state in its side table has expired"


def in_order(batch: Batch) -> Batch:
    """Mark a batch as one of an ordered source."""
    assert batch.rows is not None
    return replace(batch, rows=Rows(batch.rows.frame.withColumn("late", F.lit(False))))
