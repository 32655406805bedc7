"""Aggregated tables equal an aggregation of their source's rows."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.runtime.run import run, work_of
from local_services.paths import REPOSITORY
from tests.conftest import Lake
from tests.lakecdc.ingest.aggregating.support import ALL, SUMS, AggregateFeed, Grouped, again, cut, expected
from tests.lakecdc.ingest.apply.support import Events, truncate
from tests.lakecdc.ingest.histories import PLACEHOLDER
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.merging.test_ingest import Log
from tests.lakecdc.maintain.support import meanwhile

Row = dict[str, Any]


def played(seed: int, statements: int = 60) -> Grouped:
    history = Grouped(random.Random(seed))
    for _ in range(statements):
        history.statement(12)
    return history


def rebuilt(feed: AggregateFeed, **options: Any) -> TableReport:
    """Run the job rebuild_keys."""
    options = {name: {feed.table: value} for name, value in options.items()}
    report = run(parse_spec(feed.lake.spec("rebuild_keys", feed.table, options=options)), work_of("rebuild_keys"))
    assert not report.error, report.error
    return report.tables[0]


@pytest.mark.parametrize("columns", [SUMS, ALL], ids=["sums", "all"])
def test_a_history_in_any_batches_is_aggregated(lake: Lake, tmp_path: Path, columns: dict[str, str]) -> None:
    feed, history, rng = AggregateFeed(lake, tmp_path, columns=columns), played(7), random.Random(8)
    seen: Events = []
    for part in cut(rng, history.events, 3):
        repeated = again(rng.sample(seen, len(seen) // 4), 10_000 + len(seen))
        rng.shuffle(repeated)
        feed.take([*repeated, *part])
        seen += part
    assert feed.groups() == expected(history, columns)
    rebuilt(feed)
    assert feed.groups() == expected(history, columns)


def test_events_in_any_order_are_aggregated(lake: Lake, tmp_path: Path) -> None:
    feed, history = (
        AggregateFeed(lake, tmp_path, {"deletes": "resolved", "format_version": 3}),
        Grouped(random.Random(3)),
    )
    for _ in range(50):
        key = history.rng.randrange(9)
        if key not in history.rows:
            history.insert(key)
        elif history.rng.random() < 0.3:
            history.delete(key)
        else:
            history.update(key, touch_doc=True)
    random.Random(4).shuffle(history.events)
    for part in (history.events[:30], history.events[20:]):
        feed.take(part)
    assert feed.groups() == expected(history, ALL)


def test_a_thousand_repeated_events_change_nothing(lake: Lake, tmp_path: Path) -> None:
    feed, history = AggregateFeed(lake, tmp_path, columns=SUMS), played(5, 1000)
    feed.take(history.events)
    report = feed.take(again(history.events[-1000:], 50_000))
    assert (report.metrics["groups"], report.metrics["rows_written"]) == (0, 0)
    assert feed.groups() == expected(history, SUMS)


def test_single_row_changes_update_the_totals(lake: Lake, tmp_path: Path) -> None:
    feed, log = AggregateFeed(lake, tmp_path, columns={"total": "sum(n)"}), Log()
    rows = [{"id": 1, "name": "a", "n": 80}, {"id": 2, "name": "a", "n": 20}, {"id": 3, "name": "b", "n": None}]
    feed.take([log.event("t", "c", row) for row in rows])
    report = feed.take([log.event("t", "d", rows[1])])
    assert feed.groups() == {"a": {"total": 80, "_lakecdc_rows": 1}, "b": {"total": None, "_lakecdc_rows": 1}}
    assert report.metrics["groups_built_anew"] == 0
    # a row changes its group; a sum without values is null, not 0
    report = feed.take([log.event("t", "u", {"id": 3, "name": "a", "n": None}), log.event("t", "d", rows[0])])
    assert feed.groups() == {"a": {"total": None, "_lakecdc_rows": 1}}
    assert report.metrics["groups_built_anew"] == 1


def test_a_truncate_survives_an_interrupted_run(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = AggregateFeed(lake, tmp_path), played(9, 30)
    feed.take(history.events)
    begun = len(history.events)
    truncate(history)
    for key in (1, 2, 3):
        history.insert(key)
    act_at(monkeypatch, "before_aggregate=fail")
    feed.write(history.events[begun:])
    assert feed.run().outcome == "failed"
    act_at(monkeypatch, "")
    # nothing new at the source
    assert feed.run().outcome == "done"
    assert feed.groups() == expected(history, ALL)
    assert feed.run().outcome == "nothing"
    # rows deleted from the history by hand leave the totals
    lake.sql(f"DELETE FROM lake.{feed.table}_history WHERE id = 1")
    del history.rows[1]
    assert feed.run().outcome == "done"
    assert feed.groups() == expected(history, ALL)


def test_rows_changed_by_others_meanwhile_are_aggregated(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, log = AggregateFeed(lake, tmp_path, columns={"total": "sum(n)"}), Log()
    feed.take([log.event("t", "c", {"id": n, "name": "a", "n": n}) for n in (1, 2)])
    feed.write([log.event("t", "c", {"id": 3, "name": "a", "n": 3})])
    other = f"UPDATE lake.{feed.table} SET total = 100"
    meanwhile(monkeypatch, "before_aggregate", lambda: lake.sql(other))
    assert feed.run().outcome == "done"
    assert feed.groups() == {"a": {"total": 6, "_lakecdc_rows": 3}}
    lake.sql(f"DELETE FROM lake.{feed.table} WHERE name = 'a'")
    assert feed.take([log.event("t", "c", {"id": 4, "name": "a", "n": 4})]).outcome == "done"
    assert feed.groups() == {"a": {"total": 10, "_lakecdc_rows": 4}}
    lake.sql(other)
    assert rebuilt(feed, keys=[{"name": "b"}]).outcome == "done"
    assert feed.groups() == {"a": {"total": 10, "_lakecdc_rows": 4}}
    report = rebuilt(feed, keys=[{"name": "a"}])
    assert report.outcome == "done" and report.metrics["groups_built_anew"] == 1
    assert feed.groups() == {"a": {"total": 10, "_lakecdc_rows": 4}}
    report = rebuilt(feed, keys=[{"country": "a"}])
    assert report.outcome == "failed" and "does not have the columns name" in str(report.reason)


def test_a_key_change_that_omits_its_group_is_aggregated(lake: Lake, tmp_path: Path) -> None:
    feed, log = AggregateFeed(lake, tmp_path, columns={"total": "sum(n)"}), Log()
    first = log.event("t", "c", {"id": 1, "name": "a", "n": 1})
    late = log.event("t", "u", {"id": 1, "name": "b", "n": 1})
    deleted = log.event("t", "d", {"id": 1, "name": "", "n": 0})
    moved = log.event("t", "c", {"id": 2, "name": PLACEHOLDER, "n": 1})
    moved["headers"] = [["__debezium.oldkey", json.dumps({"id": 1})]]
    feed.take([first, deleted, moved])
    assert feed.groups() == {"a": {"total": 1, "_lakecdc_rows": 1}}
    assert rebuilt(feed, keys=[{"name": "a"}]).outcome == "done"
    assert feed.groups() == {"a": {"total": 1, "_lakecdc_rows": 1}}
    feed.take([late])
    assert feed.groups() == {"b": {"total": 1, "_lakecdc_rows": 1}}
    # nor can rows be removed from it
    for job, options in (
        ("erase_rows", {"condition": "total = 1"}),
        ("expire_partitions", {"older_than": "2020-01-01", "time_column": "_lakecdc_source_ts"}),
    ):
        report = run(parse_spec(lake.spec(job, feed.table, options=options)), work_of(job)).tables[0]
        assert report.outcome == "failed" and "aggregated from the history table" in str(report.reason), report


def test_new_rules_need_rebuild_keys(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = AggregateFeed(lake, tmp_path, columns={"total": "sum(n)", "rows": "count(*)"}), played(11, 30)
    feed.take(history.events[:20])
    new = {"total": "sum(n)", "most": "max(n)"}
    other = AggregateFeed(lake, tmp_path, {"merge": {**feed.target["merge"], "columns": new}}, feed.table, columns=new)
    other.files = feed.files
    other.write(history.events[20:])
    report = other.run()
    assert report.outcome == "failed" and "rebuild_keys" in str(report.reason)
    report = rebuilt(other, rules={"total": "collect_set(n)"})
    assert report.outcome == "failed" and "another name" in str(report.reason)
    assert feed.run().outcome == "done"
    lake.sql(f"ALTER TABLE lake.{feed.table} ADD COLUMN note string")
    act_at(monkeypatch, "before_aggregate=fail")
    assert rebuilt(other, rules=new).outcome == "failed"
    act_at(monkeypatch, "")
    # the table keeps its old rows, and its rules are the new ones
    assert other.run().outcome == "failed"
    assert rebuilt(other).outcome == "done"
    assert other.groups() == expected(history, new)
    columns = lake.table(feed.table).column_names
    assert "rows" not in columns and "note" in columns
    assert other.run().outcome == "nothing"


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ({"total": "sum(big)"}, {}, "The sums of total no longer fit"),
        ({"total": "sum(n)"}, {"name": None}, "have no value for name"),
        ({"total": "sum(other)"}, {}, "needs other"),
        ({"every": "bool_and(n)"}, {}, "for boolean columns"),
    ],
)
def test_values_that_cannot_be_aggregated_stop_the_table(
    lake: Lake, tmp_path: Path, columns: dict[str, str], row: Row, message: str
) -> None:
    feed, log = AggregateFeed(lake, tmp_path, columns=columns), Log()
    rows = [{"id": 1, "name": "a", "n": 1, "big": 2**62}, {"id": 2, "name": "a", "n": 1, "big": 2**62, **row}]
    feed.write([log.event("t", "c", row) for row in rows])
    report = feed.run()
    assert report.outcome == "failed" and message in str(report.reason), report.reason


def test_the_documented_totals_are_right(lake: Lake, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "concepts" / "merging.md").read_text()
    target = next(json.loads(text) for text in re.findall(r"```json target\n(.*?)```", page, re.S) if "totals" in text)
    table = lake.new_name("totals")
    feed = AggregateFeed(lake, tmp_path, target | {"table": table, "history_table": f"{table}_history"}, table)
    log, rng = Log(), random.Random(2)
    events = [
        log.event("orders", op, row)
        for op, row in json.loads(re.findall(r"```json aggregated\n(.*?)```", page, re.S)[0])
    ]
    for batch in (rng.sample(events, 5), [*rng.sample(events, 7), *again(events[:3], 99)]):
        feed.take(batch)
    rows = lake.duckdb_rows(table, "country, total, orders, last_order, array_to_string(shops, ', ')")
    expected_rows = re.findall(r"^\| ([A-Z]{2} .*) \|$", page, re.M)
    assert [" | ".join(map(str, row)) for row in sorted(rows)] == expected_rows
