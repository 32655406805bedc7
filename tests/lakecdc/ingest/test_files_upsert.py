"""Files of Debezium events become tables that equal the source, with any split, order and repetition."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import JobReport, TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.histories import History, lines
from tests.lakecdc.maintain.support import meanwhile
from tests.lakecdc.maintain.support import run as run_maintenance
from tests.on_demand import on_demand

COLUMNS = "id, name, n, doc"


def run_ingest(lake: Lake, folder: Path, target: dict[str, Any], **rest: Any) -> JobReport:
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    target = {"source_table": "t", **target}
    spec = lake.spec("ingest", source={**source, **rest.pop("source", {})}, target=target, **rest)
    return run(parse_spec(spec), ingest)


def assert_done(report: JobReport) -> None:
    assert not report.error, report.error
    assert [t.outcome for t in report.tables] == ["done"], report.tables[0].reason


def whole_statements(history: History, *cuts: int) -> list[int]:
    """Return bounds of batches; the two events of a key change stay together."""
    moved = {i for i, event in enumerate(history.events) if event["headers"]}
    return [0, *(cut + (cut in moved) for cut in cuts), len(history.events)]


def rows(lake: Lake, name: str, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    return sorted(lake.duckdb_rows(name, columns), key=lambda r: tuple(str(v) for v in r[:1]))


def by_key(expected: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(expected, key=lambda r: str(r[0]))


@pytest.mark.parametrize(
    ("seed", "version"), [(2, 3), *[pytest.param(seed, 2, marks=pytest.mark.soak) for seed in (1, 3)]]
)
def test_a_random_history_in_several_batches_equals_the_source(
    lake: Lake, tmp_path: Path, seed: int, version: int
) -> None:
    name = lake.new_name("files")
    history = History.of(seed, 60)
    target = {"table": name, "key": ["id"], "format_version": version, "partition_by": ["bucket(2, id)"]}
    for number, (low, high) in enumerate(itertools.pairwise(whole_statements(history, 20, 45))):
        (tmp_path / f"{number}.jsonl").write_text(lines(history.events[low:high]))
        report = run_ingest(lake, tmp_path, target)
        assert_done(report)
    assert rows(lake, name) == by_key(history.expected())
    again = run_ingest(lake, tmp_path, target)
    assert again.tables[0].outcome == "nothing"


def test_shuffled_and_repeated_events_in_one_batch_equal_the_source(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History.of(7, 80)
    events = history.events + history.events[10:40]
    random.Random(1).shuffle(events)
    (tmp_path / "a.jsonl").write_text(lines(events))
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"]})
    assert_done(report)
    assert rows(lake, name) == by_key(history.expected())
    # the view hides lakecdc's own columns
    assert sorted(lake.spark.table(f"lake.{name}_view").columns) == ["doc", "id", "n", "name"]


def test_an_older_batch_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History.of(11, 40)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    target = {"table": name, "key": ["id"]}
    run_ingest(lake, tmp_path, target)
    # replays older states of rows that still exist
    late = [
        e
        for e in history.events[:20]
        if e["value"]["op"] == "c" and e["key"]["id"] in history.rows and not e["headers"]
    ]
    assert late
    (tmp_path / "b.jsonl").write_text(lines(late))
    report = run_ingest(lake, tmp_path, target)
    assert report.tables[0].metrics["suspects"] == len({e["key"]["id"] for e in late})
    assert rows(lake, name) == by_key(history.expected())


def test_an_older_insert_does_not_resurrect_a_deleted_row(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History(random.Random(5))
    history.insert(1)
    history.insert(2)
    history.delete(1)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    target = {"table": name, "key": ["id"]}
    run_ingest(lake, tmp_path, target)
    (tmp_path / "b.jsonl").write_text(lines(history.events[:1]))
    report = run_ingest(lake, tmp_path, target)
    assert_done(report)
    assert rows(lake, name) == history.expected()


def test_in_order_batch_reads_no_data_file(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History.of(21, 30)
    first = len(history.events)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    target = {"table": name, "key": ["id"]}
    run_ingest(lake, tmp_path, target)
    for key in list(history.rows)[:3]:
        history.update(key, touch_doc=True)
    history.insert(99)
    (tmp_path / "b.jsonl").write_text(lines(history.events[first:]))
    data = Path(lake.table(name).location.removeprefix("file:")) / "data"
    hidden = {path: path.with_suffix(".hidden") for path in data.rglob("*.parquet")}
    for path, away in hidden.items():
        path.rename(away)
    report = run_ingest(lake, tmp_path, target)
    assert_done(report)
    for path, away in hidden.items():
        away.rename(path)
    assert rows(lake, name) == by_key(history.expected())


def test_growing_keys_need_no_delete(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lake.new_name("files")
    history, target = History.of(21, 0), {"table": name, "key": ["id"]}

    def take(*keys: int) -> TableReport:
        first = len(history.events)
        for key in keys:
            history.insert(key)
        (tmp_path / f"{first}.jsonl").write_text(lines(history.events[first:]))
        report = run_ingest(lake, tmp_path, target)
        assert_done(report)
        return report.tables[0]

    def deletes() -> int:
        return lake.table(name).metadata("files").where("content != 0").count()

    take(*range(10, 20))
    assert take(20, 21, 22).metrics["deletes_left_out"] == 3
    assert take(1, 30).metrics.get("deletes_left_out") is None
    before = deletes()
    assert before > 0
    # another writer adds a row with a key of the batch between staging and commit
    insert = f"INSERT INTO lake.{name} (id, name, n, doc) VALUES (40, 'other', 1, 'x')"
    meanwhile(monkeypatch, "before_commit", lambda: lake.sql(insert))
    assert take(40, 41).metrics.get("deletes_left_out") is None
    assert deletes() > before
    assert rows(lake, name) == by_key(history.expected())


def test_bucket_count_changed_between_batches_leaves_no_duplicate(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History.of(31, 40)
    half = whole_statements(history, len(history.events) // 2)[1]
    target = {"table": name, "key": ["id"], "partition_by": ["bucket(4, id)"]}
    (tmp_path / "a.jsonl").write_text(lines(history.events[:half]))
    run_ingest(lake, tmp_path, target)
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD bucket(4, id)")
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD bucket(8, id)")
    (tmp_path / "b.jsonl").write_text(lines(history.events[half:]))
    report = run_ingest(lake, tmp_path, target)
    assert_done(report)
    deletes = lake.table(name).metadata("delete_files").select("file_path", "spec_id").collect()
    assert {row["spec_id"] for row in deletes} == {0, 2} and all("/frame-" in row["file_path"] for row in deletes)
    # DuckDB 1.5.5 fails on equality deletes of two partition specs, so Spark reads until they are gone
    table_rows = [tuple(row) for row in lake.sql(f"SELECT {COLUMNS} FROM lake.{name} ORDER BY id").collect()]
    assert table_rows == history.expected()
    assert run_maintenance(lake, rewrite_delete_files, name).outcome == "done"
    assert rows(lake, name) == by_key(history.expected())


@pytest.mark.soak
def test_a_new_column_is_added(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History.of(41, 10)
    first = len(history.events)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    run_ingest(lake, tmp_path, {"table": name, "key": ["id"]})
    history.insert(77)
    history.events[-1]["value"]["after"]["extra"] = 1.5
    (tmp_path / "b.jsonl").write_text(lines(history.events[first:]))
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"]})
    assert report.tables[0].metrics["schema_changes"] == ["added extra double"]
    assert (77, 1.5) in lake.duckdb_rows(name, "id, extra")


def test_partition_that_does_not_derive_from_the_key_is_refused(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    (tmp_path / "a.jsonl").write_text(lines(History.of(51, 5).events))
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"], "partition_by": ["name"]})
    assert report.exit_code() == 4
    assert "not key columns" in (report.tables[0].reason or "")


@pytest.mark.soak
def test_a_placeholder_that_cannot_be_filled_is_refused(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History(random.Random(1))
    history.insert(1)
    history.update(1, touch_doc=False)
    (tmp_path / "a.jsonl").write_text(lines(history.events[1:]))
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"]})
    assert report.exit_code() == 4
    assert "REPLICA IDENTITY FULL" in (report.tables[0].reason or "")
    assert lake.table(name).head() is None


def test_dry_run_counts_and_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    (tmp_path / "a.jsonl").write_text(lines(History.of(61, 12).events))
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"]}, options={"dry_run": True})
    assert report.tables[0].metrics["events_c"] > 0
    assert not lake.spark.catalog.tableExists(f"lake.{name}")


def test_events_of_several_tables_need_a_name(lake: Lake, tmp_path: Path) -> None:
    one, two = History.of(71, 4), History.of(72, 4)
    for event in two.events:
        event["value"]["source"]["table"] = "other"
    (tmp_path / "a.jsonl").write_text(lines(one.events + two.events))
    name = lake.new_name("files")
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"], "source_table": None})
    assert report.exit_code() == 0 and not lake.spark.catalog.tableExists(f"lake.{name}")
    assert "other tables: shop.other, shop.t" in (report.tables[0].reason or "")


@both_engines
def test_every_table_gets_the_rows_of_its_source_table(lake: Lake, tmp_path: Path, engine: str) -> None:
    names = [lake.new_name("own") for _ in "ab"]
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "maxwell-json"}
    targets = [{"table": name, "key": ["id"]} for name in names]
    spec = parse_spec(lake.spec("ingest", source=source, target=targets))
    outcomes = []
    for number in range(3):
        table = names[number % 2].rpartition(".")[2]
        row = {"id": number, "v": table}
        message = {"database": "db", "table": table, "type": "insert", "ts": 5, "xid": number, "data": row}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(message) + "\n")
        report = run(spec, ingest)
        assert not report.error, report.error
        outcomes.append([t.outcome for t in report.tables])
    assert outcomes == [["done", "nothing"], ["nothing", "done"], ["done", "nothing"]]
    assert [rows(lake, name, "id") for name in names] == [[(0,), (2,)], [(1,)]]


@both_engines
def test_a_table_of_the_same_name_in_another_schema_stops_a_later_batch(
    lake: Lake, tmp_path: Path, engine: str
) -> None:
    name = lake.new_name("own")
    table = name.rpartition(".")[2]

    def take(number: int, database: str, **target: str) -> TableReport:
        place = {"database": database, "table": table, "ts": 5, "xid": number}
        message = {**place, "type": "insert", "data": {"id": number}}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(message) + "\n")
        source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "maxwell-json"}
        target_document = {"table": name, "key": ["id"], **target}
        spec = lake.spec("ingest", source=source, target=target_document)
        return run(parse_spec(spec), ingest).tables[0]

    assert take(1, "a").outcome == "done"
    report = take(3, "b")
    assert (report.outcome, report.failure_class) == ("failed", "bad input")
    assert f"The events are of b.{table}, but the table was fed from a.{table}." in str(report.reason)
    assert take(4, "a", source_table=f"a.{table}").outcome == "done"
    assert sorted(rows(lake, name, "id")) == [(1,), (4,)]
    # a table in another schema
    assert take(5, "c", source_table=f"c.{table}").outcome == "done"


def test_plain_envelopes_with_schemas_are_read(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("files")
    history = History(random.Random(3))
    history.insert(1)
    history.update(1, touch_doc=True)
    text = "".join(json.dumps({"schema": {"type": "struct"}, "payload": e["value"]}) + "\n" for e in history.events)
    (tmp_path / "a.jsonl").write_text(text)
    report = run_ingest(lake, tmp_path, {"table": name, "key": ["id"]}, source={"records": "value"})
    assert_done(report)
    assert rows(lake, name) == history.expected()


@pytest.mark.soak
def test_a_table_without_events_is_not_created(lake: Lake, tmp_path: Path) -> None:
    name, history = lake.new_name("files"), History.of(91, 4)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    target = {"table": name, "key": ["id"], "source_table": "shop.elsewhere"}
    assert run_ingest(lake, tmp_path, target).tables[0].outcome == "nothing"
    assert not lake.spark.catalog.tableExists(f"lake.{name}")
    assert_done(run_ingest(lake, tmp_path, {**target, "source_table": "shop.t"}))
    assert rows(lake, name) == by_key(history.expected())


def truncate(history: History) -> None:
    history.rows.clear()
    history.lsn += 10
    source = {
        **history.events[-1]["value"]["source"],
        "lsn": history.lsn,
        "sequence": f'["{history.lsn}","{history.lsn}"]',
    }
    value = {"op": "t", "before": None, "after": None, "source": source}
    history.events.append(
        {**history.events[-1], "offset": len(history.events), "key": None, "value": value, "headers": []}
    )


def test_a_truncate_within_a_batch_or_late_is_applied(lake: Lake, tmp_path: Path) -> None:
    name, history = lake.new_name("files"), History(random.Random(4))
    for key in range(5):
        history.insert(key)
    target = {"table": name, "key": ["id"]}
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    assert_done(run_ingest(lake, tmp_path, target))
    first = len(history.events)
    history.insert(10)
    truncate(history)
    late = history.events[-1]
    history.insert(11)
    (tmp_path / "b.jsonl").write_text(lines([e for e in history.events[first:] if e is not late]))
    assert_done(run_ingest(lake, tmp_path, target))
    (tmp_path / "c.jsonl").write_text(lines([late]))
    # rows from before and after it share a file
    assert_done(run_ingest(lake, tmp_path, target))
    assert rows(lake, name) == history.expected()


@pytest.mark.parametrize(
    ("moment", "version"), on_demand([("before_commit", 3), ("after_staging", 2)], in_ci=[("before_commit", 3)])
)
def test_a_changed_partition_spec_stages_an_upsert_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, version: int
) -> None:
    name = lake.new_name("files")
    target = {"table": name, "key": ["id"], "format_version": version, "partition_by": ["bucket(1, id)"]}
    history = History.of(3, 40)
    *earlier, last = itertools.pairwise(whole_statements(history, 15, 30))
    for number, (low, high) in enumerate(earlier):
        (tmp_path / f"{number}.jsonl").write_text(lines(history.events[low:high]))
        assert_done(run_ingest(lake, tmp_path, target))
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD bucket(1, id) WITH bucket(4, id)")

    def move() -> None:
        report = run_maintenance(lake, compact_data_files, name, min_input_files=2)
        assert report.outcome == "done", report.reason
        assert lake.table(name).metadata("files").where("content = 0 AND spec_id = 0").count() == 0

    meanwhile(monkeypatch, moment, move)
    (tmp_path / "last.jsonl").write_text(lines(history.events[slice(*last)]))
    assert_done(run_ingest(lake, tmp_path, target))
    # DuckDB 1.5.5 fails on deletes of two partition specs
    rows = [tuple(row) for row in lake.sql(f"SELECT {COLUMNS} FROM lake.{name} ORDER BY id").collect()]
    assert rows == history.expected()
