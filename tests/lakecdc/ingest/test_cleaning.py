"""Rows are cleaned during ingestion, with any order of events, unchanged values and filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import JobReport
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Cleaning, Target
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import cleaned, set_apart
from lakecdc.ingest.job import ingest
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from lakecdc.runtime.run import run
from tests.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNCHANGED = "__debezium_unavailable_value"


def event(lsn: int, op: str, row: dict[str, Any] | None, table: str = "t") -> str:
    source = {"connector": "postgresql", "schema": "s", "table": table, "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"op": op, **images, "source": source})


class Fed:
    """A table fed from event files, one run per file."""

    def __init__(self, lake: Lake, folder: Path, **target: Any) -> None:
        self.lake, self.folder, self.files = lake, folder, 0
        own = {} if "source_tables" in target else {"source_table": "t"}
        self.target = {"table": lake.new_name("clean"), "key": ["id"], **own, **target}
        self.options: dict[str, Any] = {}

    def run(self, *lines: str) -> JobReport:
        self.files += 1
        (self.folder / f"{self.files}.jsonl").write_text("".join(line + "\n" for line in lines))
        source = {"type": "files", "path": f"{self.folder}/*.jsonl", "format": "debezium-json"}
        spec = self.lake.spec("ingest", source=source, target=self.target, options=self.options)
        return run(parse_spec(spec), ingest)

    def done(self, *lines: str) -> dict[str, Any]:
        report = self.run(*lines).tables[0]
        assert report.outcome == "done", report.reason
        return dict(report.metrics)

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return sorted(self.lake.duckdb_rows(self.target["table"], columns))


def row(id: int, name: str, day: str, doc: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "day": day, "doc": doc if doc == UNCHANGED else json.dumps(doc)}


CLEAN = {
    "rename": {"id": "customer_id", "name": "full_name"},
    "compute": {
        "day": "to_date(day, 'dd.MM.yyyy')",
        "city": "get_json_object(doc, '$.city')",
        "label": "concat(full_name, ' of ', get_json_object(doc, '$.city'))",
    },
    "select": ["full_name", "day", "city", "label", "doc"],
    "event_time": "day",
    "lateness_seconds": 3600,
}


def test_clean_renames_computes_selects_and_moves_the_watermark(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean=CLEAN, partition_by=["bucket(2, customer_id)"])
    first = fed.done(
        event(1, "c", row(1, "Ann", "28.02.1990", {"city": "Bonn"})),
        event(2, "c", row(2, "Bob", "01.03.1990", {"city": "Kiel"})),
        event(2, "c", row(3, "Cid", "27.02.1990", {"city": "Bern"})),
    )
    assert first["watermark"] == "1990-02-28T23:00:00+00:00"
    # the document is unchanged; columns computed from it and from the new name are computed again
    fed.done(
        event(3, "u", row(1, "Anna", "28.02.1990", UNCHANGED)),
        event(4, "d", {"id": 2}),
        event(5, "u", row(3, "Cid", "28.02.1990", {"city": "Ulm"})),
    )
    assert fed.rows("customer_id, full_name, day::text, city, label, doc") == [
        (1, "Anna", "1990-02-28", "Bonn", "Anna of Bonn", '{"city": "Bonn"}'),
        (3, "Cid", "1990-02-28", "Ulm", "Cid of Ulm", '{"city": "Ulm"}'),
    ]


def test_a_run_without_events_of_the_table_does_nothing(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean=CLEAN)
    # first without a table, then with one that lacks the input columns
    for lsn in (1, 3):
        report = fed.run(event(lsn, "c", {"id": 7}, table="other")).tables[0]
        assert report.outcome == "nothing", report.reason
        assert "for other tables: s.other" in str(report.reason) or lsn == 3
        if lsn == 1:
            fed.done(event(2, "c", row(1, "Ann", "28.02.1990", {"city": "Bonn"})))
    assert fed.rows("customer_id, city") == [(1, "Bonn")]


def test_a_late_event_is_recognized_under_a_renamed_key(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean={"rename": {"id": "key"}})
    fed.done(event(5, "c", {"id": 1, "n": 5}), event(6, "c", {"id": 2, "n": 6}), event(7, "d", {"id": 2}))
    fed.done(event(3, "u", {"id": 1, "n": 3}), event(4, "u", {"id": 2, "n": 4}))
    assert fed.rows("key, n") == [(1, 5)]


def test_an_update_that_leaves_the_filter_deletes(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean={"filter": "n > 10"})
    fed.done(*[event(i, "c", {"id": i, "n": n}) for i, n in enumerate((5, 20, 30, None), 1)])
    assert fed.rows("id, n") == [(2, 20), (3, 30)]
    fed.done(event(11, "u", {"id": 2, "n": 9}), event(12, "u", {"id": 1, "n": 11}))
    assert fed.rows("id, n") == [(1, 11), (3, 30)]
    # an older state in which the row was inside comes late: the row has left
    fed.done(event(10, "u", {"id": 2, "n": 99}))
    assert fed.rows("id, n") == [(1, 11), (3, 30)]


@pytest.mark.soak
def test_an_update_outside_the_filter_needs_no_omitted_value(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean={"filter": "n > 10"})
    fed.options = {"quarantine_table": lake.new_name("quarantine"), "max_quarantined_fraction": 0.5}
    fed.done(event(1, "c", {"id": 1, "n": 5, "doc": "a"}), event(2, "c", {"id": 2, "n": 20, "doc": "b"}))
    left = [event(i + 2, "u", {"id": i, "n": 6, "doc": UNCHANGED}) for i in (1, 2)]
    assert "quarantined" not in fed.done(*left)
    assert fed.rows("id") == []
    # inside the filter again, its unchanged values are unknown
    again = event(5, "u", {"id": 1, "n": 30, "doc": UNCHANGED})
    assert fed.done(again, event(6, "c", {"id": 3, "n": 30, "doc": "c"}))["quarantined"] == 1
    assert fed.rows("id, n, doc") == [(3, 30, "c")]


@pytest.mark.soak
def test_an_invalid_moment_moves_no_watermark(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean={"event_time": "day"})
    days = ["2026-01-02", "soon", "+12026-01-01", None]
    metrics = fed.done(*[event(i, "c", {"id": i, "day": day}) for i, day in enumerate(days)])
    assert metrics["watermark"] == "2026-01-02T00:00:00+00:00"
    assert len(fed.rows("id")) == len(days)


def test_history_shows_an_update_that_leaves_the_filter_as_a_delete(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, mode="history", clean={"filter": "n > 10"})
    fed.done(event(1, "c", {"id": 1, "n": 5}), event(2, "c", {"id": 2, "n": 20}), event(3, "u", {"id": 2, "n": 1}))
    assert fed.rows("id, _lakecdc_op, n") == [(2, "c", 20), (2, "d", None)]


def test_a_computed_column_without_its_input_stops_at_a_placeholder(lake: Lake, tmp_path: Path) -> None:
    clean = {"compute": {"city": "get_json_object(doc, '$.city')"}, "select": ["name", "city"]}
    fed = Fed(lake, tmp_path, clean=clean)
    fed.done(event(1, "c", row(1, "Ann", "", {"city": "Bonn"})))
    report = fed.run(event(2, "u", row(1, "Anna", "", UNCHANGED))).tables[0]
    assert report.failure_class == "bad input" and "'city' is computed" in str(report.reason)
    assert fed.rows("id, name, city") == [(1, "Ann", "Bonn")]


@pytest.mark.parametrize(
    ("clean", "message"),
    [
        ({"filter": "absent = 1"}, "absent"),
        ({"rename": {"gone": "x"}}, "gone"),
        ({"rename": {"n": "id"}}, "the name of another"),
        ({"select": ["gone"]}, "gone"),
        ({"compute": {"id": "1"}}, "key column"),
        ({"compute": {"x": "sum(n)"}}, "GROUP BY"),
        ({"filter": "n"}, "not a condition"),
        ({"rename": {"n": "ID"}}, "the name of another"),
        ({"compute": {"x": "uuid()"}}, "not deterministic"),
        ({"compute": {"x": "row_number() OVER (ORDER BY id)"}}, "other rows of a batch"),
        ({"select": ["id"], "event_time": "n"}, "clean.event_time"),
    ],
)
def test_invalid_clean_settings_are_refused(spark: SparkSession, clean: dict[str, Any], message: str) -> None:
    target = Target("test.t", ("id",), clean=Cleaning(**{"select": (), **clean}))
    columns = (Column("id", "bigint"), Column("n", "bigint"))
    # its rows are not checked before
    batch = Batch(target, ("id",), columns, Rows(spark.range(0)), Position("test", "1", {}))
    with pytest.raises(InputError) as refused:
        cleaned(spark, batch)
    assert message in str(refused.value)


def test_invalid_clean_settings_are_refused_before_any_write(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, clean={"compute": {"x": "nope + 1"}})
    report = fed.run(event(1, "c", {"id": 1, "n": 1})).tables[0]
    assert report.failure_class == "bad input" and "nope" in str(report.reason)
    assert not lake.sql(f"SHOW TABLES IN lake.test LIKE '{fed.target['table'].partition('.')[2]}'").collect()


@pytest.mark.parametrize(
    "mode", ["upsert", *(pytest.param(other, marks=pytest.mark.soak) for other in ("no json", "history", "merge"))]
)
def test_rows_that_fail_an_expression_are_quarantined(lake: Lake, tmp_path: Path, mode: str) -> None:
    clean = {"compute": {"day": "to_date(day, 'dd.MM.yyyy')"}, "filter": "100 / n > 1"}
    fed = Fed(lake, tmp_path, clean=clean, columns={"day": "string"})
    quarantine = lake.new_name("quarantine")
    fed.options = {"quarantine_table": quarantine, "max_quarantined_fraction": 0.9}
    if mode in ("history", "merge"):
        fed.target |= {"history_table": lake.new_name("log"), "mode": "merge" if mode == "merge" else "upsert"}
    bad, odd = {"id": 1, "day": "no day", "n": 1}, {"id": 3, "day": "03.01.2024", "n": 0}
    metrics = fed.done(
        event(1, "c", {"id": 1, "day": "01.01.2024", "n": 1}),
        event(2, "u", bad),
        event(3, "c", {"id": 2, "day": "02.01.2024", "n": 1}),
        event(4, "c", odd),
        event(5, "c", {"id": 4, "day": "02.01.2024", "n": 500}),
        *(["{no json"] if mode == "no json" else []),
    )
    assert metrics["quarantined"] == 2 + (mode == "no json") and metrics["commits"] == 1
    # the state before a bad update stays
    assert fed.rows("id, day::text") == [(1, "2024-01-01"), (2, "2024-01-02")]
    rows = lake.sql(f"SELECT rule, reason, CAST(raw_value AS string) v FROM lake.{quarantine} ORDER BY rule, reason")
    assert [(r["rule"], r["reason"].rpartition(": ")[2]) for r in rows.collect()][:2] == [
        ("clean", "day"),
        ("clean", "filter"),
    ]
    assert [json.loads(r["v"])["after"] for r in rows.collect()[:2]] == [bad, odd]
    if mode in ("history", "merge"):
        history = lake.duckdb_rows(fed.target["history_table"], "id, n")
        assert sorted(history) == [(1, 1), (2, 1), (4, 500)], "quarantined rows are not in the history"
    assert fed.done(event(6, "u", {"id": 1, "day": "05.01.2024", "n": 1}))["commits"] == 1
    assert fed.rows("id, day::text")[0] == (1, "2024-01-05")


def test_only_failing_rows_of_one_order_are_quarantined(spark: SparkSession) -> None:
    order = order_key(1, 5)
    events = [("u", 1, "01.01.2024", None), ("u", 2, "no day", None), ("d", 3, None, None), ("u", 4, "no day", 3)]
    rows = [
        (op, (key,), (key, day) if day else None, None, (old,) if old else None, order, None)
        for op, key, day, old in events
    ]
    schema = (
        "op string, key struct<id: int>, row struct<id: int, day: string>, open array<string>, "
        "old_key struct<id: int>, `order` string, source_time timestamp"
    )
    target = Target("test.days", ("id",), clean=Cleaning(compute={"day": "to_date(day, 'dd.MM.yyyy')"}))
    columns = (Column("id", "int"), Column("day", "string"))
    changes = spark.createDataFrame(rows, schema)
    parted = set_apart(spark, Batch(target, ("id",), columns, Rows(changes), Position("test", "1", {})))
    assert parted is not None
    rest, misfits = parted
    assert rest.rows is not None and rest.source.facts["rows_read"] == len(rows)
    assert [row["key"].id for row in rest.rows.frame.collect()] == [1]
    assert sorted(row["key"].id for row in misfits.collect()) == [2, 4]


TRUNCATE = event(5, "t", None)


@pytest.mark.soak
def test_truncate_is_applied(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path)
    fed.done(event(1, "c", {"id": 1, "n": 1}), event(2, "c", {"id": 2, "n": 2}))
    fed.done(event(4, "u", {"id": 1, "n": 4}), TRUNCATE, event(6, "c", {"id": 3, "n": 3}))
    assert fed.rows("id, n") == [(3, 3)]


def test_events_late_for_a_truncate_are_dropped(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path)
    fed.done(event(1, "c", {"id": 1, "n": 1}), TRUNCATE, event(6, "c", {"id": 3, "n": 3}))
    fed.done(event(7, "u", {"id": 3, "n": 7}))
    metrics = fed.done(event(4, "u", {"id": 1, "n": 4}), event(3, "c", {"id": 2, "n": 2}))
    assert metrics["older_dropped"] == 2
    assert fed.rows("id, n") == [(3, 7)]


def test_a_truncate_of_one_shard_does_not_remove_the_others(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, source_tables=[r"s\.t\d"], source_column="shard", key=["id", "shard"])
    fed.done(event(1, "c", {"id": 1}, "t1"), event(2, "c", {"id": 1}, "t2"))
    report = fed.run(event(5, "t", None, "t1")).tables[0]
    assert report.failure_class == "bad input" and "rows of the others" in str(report.reason)
    assert fed.rows("id, shard") == [(1, "s.t1"), (1, "s.t2")]


def test_a_truncate_can_be_marked_or_stop_the_table(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, on_truncate="mark")
    fed.done(event(1, "c", {"id": 1, "n": 1}))
    metrics = fed.done(event(4, "u", {"id": 1, "n": 4}), TRUNCATE, event(6, "c", {"id": 3, "n": 3}))
    assert fed.rows("id, n") == [(1, 4), (3, 3)]
    marked = "2023-11-14T22:13:20.005000+00:00"
    assert metrics["truncate_marked"] == marked
    assert lake.table(fed.target["table"]).properties["lakecdc.truncated-at"] == marked
    fed.target["on_truncate"] = "stop"
    report = fed.run(event(8, "t", None), event(9, "c", {"id": 4, "n": 4})).tables[0]
    assert report.failure_class == "bad input" and "truncated at 2023-11-14" in str(report.reason)
    assert fed.rows("id, n") == [(1, 4), (3, 3)]
