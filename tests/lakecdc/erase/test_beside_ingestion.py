"""A batch that was under way while rows were erased does not bring them back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.erase.job import erase_rows
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory
from tests.lakecdc.maintain.support import meanwhile, run

GONE = 7


@pytest.mark.parametrize(("has_history", "moment"), [(False, "before_commit"), (True, "history_before_commit")])
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
