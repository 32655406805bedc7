"""Targets with the setting merge, fed from files of events; read by DuckDB."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import SOURCE_TABLE_COLUMN, parse_targets
from lakecdc.ingest.apply import merge
from lakecdc.ingest.job import ingest
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run
from local_services.paths import REPOSITORY
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed
from tests.lakecdc.ingest.histories import PLACEHOLDER
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.maintain.support import meanwhile
from tests.lakecdc.moments.support import iso, restored
from tests.lakecdc.reconcile.support import reconciled

Row = dict[str, Any]
_TYPES = {"flag": "int", "doc": "map<string,int>"}


class Log:
    """Debezium events of several tables of one database, in order."""

    def __init__(self) -> None:
        self.lsn = 1000

    def event(self, table: str, op: str, row: Row, key: str = "id") -> dict[str, Any]:
        self.lsn += 10
        source = {"connector": "postgresql", "db": "d", "schema": "shop", "table": table, "lsn": self.lsn}
        source |= {"snapshot": "false", "ts_ms": 1_700_000_000_000 + self.lsn, "sequence": f'["1","{self.lsn}"]'}
        before, after = (row, None) if op == "d" else (None, row)
        value = {"op": op, "before": before, "after": after, "source": source}
        place = {"topic": f"pg.shop.{table}", "partition": 0, "offset": self.lsn}
        return {**place, "key": {key: row[key]}, "value": value, "headers": []}


def feed_of(lake: Lake, folder: Path, merge: Row, **target: Any) -> Feed:
    return Feed(lake, folder, {"merge": merge, **target})


@pytest.mark.parametrize(
    "target",
    [{"format_version": 3, "deletes": "resolved"}, {"deletes": "equality"}, {"mode": "merge"}],
    ids=["resolved", "equality", "merge"],
)
def test_partial_updates_are_merged(lake: Lake, tmp_path: Path, target: Row) -> None:
    feed, log = feed_of(lake, tmp_path, {"default": "last_non_null", "columns": {"seen": "max"}}, **target), Log()
    first = log.event("t", "c", {"id": 1, "name": "a", "n": None, "seen": 5})
    late = log.event("t", "u", {"id": 1, "name": "late", "n": 7, "seen": 9})
    feed.take([first, log.event("t", "c", {"id": 2, "name": "b", "n": 1, "seen": 1})])
    feed.take([log.event("t", "u", {"id": 1, "name": None, "n": 3, "seen": 4})])
    columns = "id, name, n, seen"
    assert feed.rows(columns=columns) == [(1, "a", 3, 5), (2, "b", 1, 1)]
    # newer than the name, older than n
    report = feed.take([late])
    assert feed.rows(columns=columns) == [(1, "late", 3, 9), (2, "b", 1, 1)]
    assert report.metrics["keys_merged"] == 1
    feed.take([log.event("t", "d", {"id": 1, "name": None, "n": None, "seen": None}), late])
    feed.take([first])
    assert feed.rows(columns=columns) == [(2, "b", 1, 1)]


def test_a_first_row_stays_and_later_rows_write_nothing(lake: Lake, tmp_path: Path) -> None:
    feed, log = feed_of(lake, tmp_path, {"engine": "first_row"}), Log()
    early = log.event("t", "c", {"id": 1, "name": "early"})
    feed.take([log.event("t", "c", {"id": 1, "name": "first"}), log.event("t", "u", {"id": 1, "name": "second"})])
    report = feed.take([log.event("t", "u", {"id": 1, "name": "third"})])
    assert (report.metrics["data_files"], report.metrics["delete_files"]) == (0, 0)
    assert feed.rows(columns="id, name") == [(1, "first")]
    feed.take([early])
    assert feed.rows(columns="id, name") == [(1, "early")]


def test_several_tables_make_a_wide_row(lake: Lake, tmp_path: Path) -> None:
    groups = [
        {"columns": ["name", "mail"], "source_table": "shop.person"},
        {"columns": ["city"], "source_table": "shop.address"},
    ]
    settings = {"source_tables": ["shop\\..*"], "partition_by": ["bucket(2, id)"]}
    feed, log = feed_of(lake, tmp_path, {"groups": groups}, **settings), Log()
    late = log.event("address", "c", {"id": 1, "city": "Rome"})
    feed.take([log.event("person", "c", {"id": 1, "name": "Ada", "mail": "a@x"})])
    feed.take(
        [log.event("address", "u", {"id": 1, "city": "Bonn"}), log.event("address", "c", {"id": 2, "city": "Nice"})]
    )
    feed.take([late, log.event("person", "u", {"id": 1, "name": "Ada L.", "mail": None})])
    columns = "id, name, mail, city"
    assert feed.rows(columns=columns) == [(1, "Ada L.", None, "Bonn"), (2, None, None, "Nice")]
    deleted = log.event("person", "d", {"id": 1})
    feed.take([deleted])
    assert feed.rows(columns=columns) == [(1, None, None, "Bonn"), (2, None, None, "Nice")]
    feed.take([log.event("address", "d", {"id": 1})])
    feed.take([late])
    assert feed.rows(columns=columns) == [(2, None, None, "Nice")]
    feed.take([log.event("person", "c", {"id": 1, "name": "Eve", "mail": "e@x"})])
    assert feed.rows(columns=columns) == [(1, "Eve", "e@x", None), (2, None, None, "Nice")]


def test_a_group_is_compared_with_its_source_table(lake: Lake, tmp_path: Path) -> None:
    name, person = lake.new_name("wide"), lake.new_name("person")
    groups = [
        {"columns": ["name"], "source_table": person.rpartition(".")[2]},
        {"columns": ["city"], "source_table": "address"},
    ]
    feed, log = feed_of(lake, tmp_path, {"groups": groups}, source_tables=[".*"]), Log()
    feed.table = name
    people = [log.event(person.rpartition(".")[2], "c", {"id": i, "name": f"n {i}"}) for i in range(4)]
    deleted = log.event(person.rpartition(".")[2], "d", {"id": 3})
    feed.take([*people, *[log.event("address", "c", {"id": i, "city": "Rome"}) for i in (0, 3, 9)], deleted])
    lake.sql(f"CREATE TABLE lake.{person} USING iceberg AS SELECT id, concat('n ', id) AS name FROM range(3)")
    target = {"table": name, "source_table": person, "key": ["id"]}
    report = reconciled(lake, {"type": "iceberg"}, target)
    assert (report.outcome, report.metrics["rows_source"], report.metrics["rows_table"]) == ("nothing", 3, 3)
    lake.sql(f"UPDATE lake.{person} SET name = 'other' WHERE id = 0")
    report = reconciled(lake, {"type": "iceberg"}, target, max_wait=0)
    assert report.metrics["ranges_different"] == 1
    other = lake.new_name("other")
    lake.sql(f"CREATE TABLE lake.{other} USING iceberg AS SELECT id FROM range(3)")
    assert "feeds no group" in str(reconciled(lake, {"type": "iceberg"}, {**target, "source_table": other}).reason)


def test_unknown_values_wait_in_quarantine(lake: Lake, tmp_path: Path) -> None:
    groups = [{"columns": ["name", "mail"], "source_table": "person"}, {"columns": ["city"], "source_table": "address"}]
    feed, log = feed_of(lake, tmp_path, {"groups": groups}, source_tables=["person", "address"]), Log()
    feed.options = {"max_quarantined_fraction": 1.0}
    incomplete = log.event("person", "u", {"id": 1, "name": "Ada", "mail": PLACEHOLDER})
    report = feed.take([incomplete, log.event("address", "c", {"id": 1, "city": "Rome"})])
    columns = "id, name, mail, city"
    assert (report.metrics["quarantined"], feed.rows(columns="id, city")) == (1, [(1, "Rome")])
    feed.take([log.event("person", "u", {"id": 1, "name": "Ada", "mail": "a@x"})])
    feed.take([log.event("person", "u", {"id": 1, "name": "Eve", "mail": PLACEHOLDER})])
    assert feed.rows(columns=columns) == [(1, "Eve", "a@x", "Rome")]


def test_the_documented_wide_row_is_right(lake: Lake, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "concepts" / "merging.md").read_text()
    target = next(json.loads(text) for text in re.findall(r"```json target\n(.*?)```", page, re.S) if "wide" in text)
    events = json.loads(re.findall(r"```json events\n(.*?)```", page, re.S)[0])
    table = re.findall(r"^\| (\d.*) \|$", page, re.M)
    expected = [tuple(None if cell == "null" else cell for cell in line.split(" | ")) for line in table]
    log, rng = Log(), random.Random(5)
    log_events = [log.event(name.rpartition(".")[2], op, row, "customer_id") for name, op, row in events]
    feed = Feed(lake, tmp_path, target, table=lake.new_name("wide"))
    feed.target |= {"table": feed.table}
    for batch in (rng.sample(log_events[:5], 5), rng.sample(log_events[4:], 4)):
        feed.take(batch)
    rows = feed.rows(columns="customer_id, name, mail, city, balance, currency")
    assert [tuple(None if v is None else str(v) for v in row) for row in rows] == expected


def test_rules_cannot_change(lake: Lake, tmp_path: Path) -> None:
    feed, log = feed_of(lake, tmp_path, {"columns": {"n": "max"}}), Log()
    feed.take([log.event("t", "c", {"id": 1, "n": 1})])
    feed.target = {"merge": {"columns": {"n": "min"}}}
    feed.write([log.event("t", "u", {"id": 1, "n": 0})])
    report = run(parse_spec(feed.spec), ingest)
    assert "cannot be merged again" in str(report.tables[0].reason)
    assert feed.rows(columns="id, n") == [(1, 1)]


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ({"columns": {"n": "avg"}}, "one of 'last'"),
        ({"columns": {"id": "max"}}, "the key column 'id'"),
        ({"engine": "first_row", "default": "max"}, "has no other rules"),
        ({"groups": [{"columns": ["a"]}]}, "has no order"),
        ({"groups": [{"columns": ["a"], "source_table": "shop.a"}]}, "one table feeds the target"),
        ({"groups": [{"columns": ["a"], "sequence": "v"}], "deletes": "group"}, "a delete has no sequence"),
        ({"groups": [{"columns": ["a"], "sequence": "v"}], "columns": {"v": "max"}}, "in a group and in columns"),
        ({"groups": [{"columns": ["a"], "sequence": "doc"}]}, "of type map"),
        ({"columns": {"flag": "bool_or"}}, "bool_or is for boolean columns"),
    ],
)
def test_mistakes_are_refused_when_the_dag_is_parsed(merge: Row, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_targets(
            {"table": "shop.t", "key": ["id"], "columns": {"flag": "int", "doc": "map<string,int>"}, "merge": merge}
        )
    assert message in f"{error.value} {error.value.hint}"


@pytest.mark.parametrize("moment", ["after_staging", "before_commit", "after_commit"])
def test_a_run_interrupted_at_a_commit_can_be_repeated(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    name, log = lake.new_name("merged"), Log()
    settings = {"deletes": "resolved", "history_table": f"{name}_history"}
    feed = Feed(lake, tmp_path, {"merge": {"default": "last_non_null", "columns": {"n": "max"}}, **settings}, name)
    feed.take(
        [log.event("t", "c", {"id": 1, "name": "a", "n": 3}), log.event("t", "c", {"id": 2, "name": "b", "n": 1})]
    )
    updates = [log.event("t", "u", {"id": i, "name": f"new {i}" if i > 1 else None, "n": 2}) for i in (1, 2, 3)]
    feed.write([*updates, log.event("t", "d", {"id": 3, "name": None, "n": None})])
    # the history table is committed before the second moment
    act_at(monkeypatch, f"{moment}=raise")
    assert feed.run().outcome == "failed"
    act_at(monkeypatch, "")
    feed.run()
    assert feed.rows(columns="id, name, n") == [(1, "a", 3), (2, "new 2", 2)]
    assert len(lake.duckdb_rows(f"{name}_history", "id")) == 6


@pytest.mark.parametrize("mode", ["upsert", "merge"])
def test_rows_changed_by_others_meanwhile_are_merged_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    feed, log = feed_of(lake, tmp_path, {"default": "last_non_null"}, mode=mode), Log()
    rows = [{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b", "n": 1}]
    feed.take([log.event("t", "c", row) for row in rows])
    feed.write([log.event("t", "u", {"id": 1, "name": None, "n": 2})])
    update = f"UPDATE lake.{feed.table} SET name = 'by hand' WHERE id = 1"
    meanwhile(monkeypatch, "before_staging", lambda: lake.spark.sql(update))
    monkeypatch.setattr(merge, "reach", failpoints.reach)
    assert feed.run().outcome == "done"
    assert feed.rows(columns="id, name, n") == [(1, "by hand", 2), (2, "b", 1)]


def test_merged_rows_can_be_restored_to_a_moment(lake: Lake, tmp_path: Path) -> None:
    name, log = lake.new_name("merged"), Log()
    rules = {"default": "last_non_null", "columns": {"n": "max"}}
    feed = Feed(lake, tmp_path, {"merge": rules, "history_table": f"{name}_history"}, name)
    late = log.event("t", "u", {"id": 1, "name": "late", "n": 9})
    feed.take(
        [log.event("t", "c", {"id": 1, "name": "a", "n": 3}), log.event("t", "c", {"id": 2, "name": "b", "n": 1})]
    )
    updates = [
        log.event("t", "u", {"id": 1, "name": None, "n": 2}),
        log.event("t", "d", {"id": 2, "name": None, "n": None}),
    ]
    moment = 1_700_000_000_000 + log.lsn
    after = [
        log.event("t", "u", {"id": 1, "name": "after", "n": 99}),
        log.event("t", "c", {"id": 2, "name": "x", "n": 0}),
    ]
    feed.take([late, *updates, *after])
    report = restored(lake, name, moment=iso(moment))[0]
    assert report.outcome == "done", report.reason
    assert lake.duckdb_rows(name, "id, name, n", report.metrics["branch"]) == [(1, "a", 9)]
    assert sorted(feed.rows(columns="id, name, n")) == [(1, "after", 99), (2, "x", 0)]
    assert SOURCE_TABLE_COLUMN not in lake.table(f"{name}_history").column_names


def test_a_moment_of_a_wide_row(lake: Lake, tmp_path: Path) -> None:
    name, log = lake.new_name("wide"), Log()
    groups = [
        {"columns": ["name"], "source_table": "shop.person"},
        {"columns": ["city"], "source_table": "shop.address"},
    ]
    settings = {"source_tables": ["shop\\..*"], "history_table": f"{name}_history"}
    feed = Feed(lake, tmp_path, {"merge": {"groups": groups}, **settings}, name)
    late = log.event("address", "u", {"id": 2, "city": "late"})
    feed.take([log.event("person", "c", {"id": i, "name": f"n {i}"}) for i in (1, 2)])
    feed.take([log.event("address", "c", {"id": i, "city": "Bonn"}) for i in (1, 2)])
    before = [
        log.event("person", "d", {"id": 1}),
        log.event("person", "d", {"id": 2}),
        log.event("address", "d", {"id": 2}),
        log.event("address", "u", {"id": 1, "city": "Rome"}),
    ]
    moment = 1_700_000_000_000 + log.lsn
    after = [log.event("address", "d", {"id": 1}), log.event("person", "c", {"id": 2, "name": "new"})]
    feed.take([late, *before, *after])
    written = {(row[0], row[1]) for row in lake.duckdb_rows(f"{name}_history", f"{SOURCE_TABLE_COLUMN}, city")}
    assert written == {("shop.person", None), *(("shop.address", city) for city in ("Bonn", "Rome", "late", None))}
    report = restored(lake, name, moment=iso(moment))[0]
    assert report.outcome == "done", report.reason
    assert lake.duckdb_rows(name, "id, name, city", report.metrics["branch"]) == [(1, None, "Rome")]
    # as a release wrote it that did not know the column
    lake.sql(f"ALTER TABLE lake.{name}_history DROP COLUMN {SOURCE_TABLE_COLUMN}")
    feed.take([log.event("person", "u", {"id": 2, "name": "newer"})])
    report = restored(lake, name, moment=iso(moment), branch="again")[0]
    assert "events in its history table" in str(report.reason) and "name no source table" in str(report.reason)
    now = [(row[1], row[0]) for row in lake.duckdb_rows(f"{name}_history", f"{SOURCE_TABLE_COLUMN}, name")]
    assert ("newer", "shop.person") in now and ("new", None) in now
