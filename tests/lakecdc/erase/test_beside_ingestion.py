"""A batch that was under way while rows were erased does not bring them back."""

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

GONE = 7


@pytest.mark.parametrize(
    ("has_history", "moment"),
    on_demand([(False, "before_commit"), (True, "history_before_commit")], in_ci=[(True, "history_before_commit")]),
)
def test_a_late_event_in_a_batch_that_was_staged_before_stays_out(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_history: bool, moment: str
) -> None:
    name, reports = lake.new_name("beside"), list[TableReport]()
    log = f"{name}_history"
    feed = Feed(lake, tmp_path, {"history_table": log} if has_history else {}, table=name)
    source = PlainHistory(random.Random(11))
    for key in (1, GONE):
        source.insert(key)
    source.update(GONE, touch_doc=True)
    source.insert(2)
    late = source.events.pop(2)
    feed.take(source.events)
    source.insert(3)
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {GONE}L AS id")
    given = {"keys_table": f"{name}_keys", "history_tables": {name: log} if has_history else {}}

    meanwhile(monkeypatch, moment, lambda: reports.append(run(lake, erase_rows, name, **given)))
    feed.take([late, source.events[-1]])
    # what the batch had staged is seen
    assert [report.outcome for report in reports] == ["failed"]
    tables = [name, log] if has_history else [name]
    assert [feed.rows(table, "id") for table in tables] == [[(1,), (2,), (3,)]] * len(tables)
    assert run(lake, erase_rows, name, **given).metrics["files_with_keys"] == 0

    # what the source has anew is in the table anew
    del source.rows[GONE]
    source.insert(GONE)
    feed.take(source.events[-1:])
    assert [(GONE,) in feed.rows(table, "id") for table in tables] == [True] * len(tables)


@pytest.mark.parametrize("merge", [None, {"default": "last_non_null"}], ids=["completed", "merged"])
def test_a_batch_that_has_read_a_row_before_its_erasure_does_not_bring_its_values_back(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: dict[str, str] | None
) -> None:
    name, reports = lake.new_name("beside"), list[TableReport]()
    feed = Feed(lake, tmp_path, {"merge": merge} if merge else {}, name, options={"max_quarantined_fraction": 1.0})
    source = PlainHistory(random.Random(11))
    for key in (1, GONE):
        source.insert(key)
    feed.take(source.events)
    taken = len(source.events)
    for key in (1, GONE):
        source.update(key, touch_doc=False)
    told = source.events[taken:]
    for event in told:
        event["value"]["after"]["name"] = None if merge else PLACEHOLDER
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {GONE}L AS id")
    erasure = partial(run, lake, erase_rows, name, keys_table=f"{name}_keys")
    meanwhile(monkeypatch, "before_staging", lambda: reports.append(erasure()))
    feed.take(told)
    assert [report.outcome for report in reports] == ["done"]
    # the update waits in the quarantine: nothing has what it left out
    assert [row[0] for row in feed.rows()] == [1]
    assert feed.rows()[0][1] == source.events[0]["value"]["after"]["name"]


def test_a_batch_that_the_table_has_not_taken_is_neither_torn_nor_entered_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(lake)
    name, log = loads.target.table, loads.log
    loads.feed(loads.batch(1, {1: "a", GONE: "a"}))
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {GONE}L AS id")

    def interrupted(moment: str, batch: Batch) -> TableReport:
        with monkeypatch.context() as patch:
            meanwhile(patch, moment, lambda: loads.feed(batch, interrupted=True))
            return run(lake, erase_rows, name, keys_table=f"{name}_keys", history_tables={name: log})

    # before the history table is rewritten: it would lack what the table has as soon as ingestion goes on
    news = in_order(loads.batch(2, {GONE: "b"}, full_load=False))
    with pytest.raises(InputError, match="a batch that is not yet in the table"):
        interrupted("erase_before_commit", news)
    assert [row[1:3] for row in loads.rows()] == [(1, "a"), (GONE, "a"), (GONE, "b")]
    loads.feed(news)
    # and after that: the table is rewritten as well, and stands where it stood
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
    assert state_beside(history, table, before) is None, "its state beside has expired"


def in_order(batch: Batch) -> Batch:
    """A batch of a source that tells what it has read already."""
    assert batch.rows is not None
    return replace(batch, rows=Rows(batch.rows.frame.withColumn("late", F.lit(False))))
