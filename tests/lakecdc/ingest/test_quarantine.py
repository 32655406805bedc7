"""Messages that cannot be applied are quarantined once, and replayed with their former order key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.feeding import IngestOptions
from lakecdc.contract.report import JobReport
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target
from lakecdc.ingest import quarantine
from lakecdc.ingest.batch import Batch, Rejected
from lakecdc.ingest.change import Rows
from lakecdc.ingest.job import ingest
from lakecdc.metadata.positions import Position
from lakecdc.model.order import RANK_READ, order_key
from lakecdc.runtime.run import failure, run
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import both_engines


def event(lsn: int, op: str, row: dict[str, Any]) -> str:
    source = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"op": op, **images, "source": source})


class Fed:
    """A table fed from event files, with a separate quarantine table."""

    def __init__(self, lake: Lake, folder: Path, **columns: str) -> None:
        self.lake, self.folder = lake, folder
        self.name, self.quarantine = lake.new_name("fed"), lake.new_name("quarantine")
        self.target: dict[str, Any] = {"table": self.name, "key": ["id"], "source_table": "t"}
        self.target["columns"] = {"id": "bigint", **columns}
        self.files, self.encoding = 0, "utf-8"

    def write(self, *lines: str) -> None:
        self.files += 1
        text = "".join(line + "\n" for line in lines)
        (self.folder / f"{self.files}.jsonl").write_text(text, encoding=self.encoding)

    def run(self, job: str = "ingest", **options: Any) -> JobReport:
        source = {"type": "files", "path": f"{self.folder}/*.jsonl", "format": "debezium-json"}
        options = {"quarantine_table": self.quarantine, "max_quarantined_fraction": 1.0, **options}
        spec = self.lake.spec(job, source=source, target=self.target, options=options)
        return run(parse_spec(spec), ingest)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.lake.duckdb_rows(self.name, "id, n"))

    def quarantined_rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.lake.duckdb_rows(self.quarantine, "rule, raw_value"))


@both_engines
def test_bad_messages_are_quarantined_whole_and_others_applied(lake: Lake, tmp_path: Path, engine: str) -> None:
    fed = Fed(lake, tmp_path, n="int")
    fed.encoding = "latin-1"
    two = event(5, "c", {"id": 5, "n": 5}) + event(6, "c", {"id": 6, "n": 6})
    bad = [event(2, "c", {"id": 2, "n": "many"}), "{broken", event(3, "c", {"n": 3}), '{"op": "z"}', two]
    # bytes outside UTF-8 are kept unchanged
    bad.append(event(7, "c", {"id": 7, "n": "?"}).replace("?", "\u00fc"))
    fed.write(event(1, "c", {"id": 1, "n": 1}), *bad, event(4, "c", {"id": 4, "n": None}))
    report = fed.run().tables[0]
    assert report.outcome == "done", report.reason
    assert report.metrics["quarantined"] == 6
    assert fed.rows() == [(1, 1), (4, None)]
    rules = ["type", "not-json", "no-key", "unknown-message", "not-json", "not-json"]
    assert fed.quarantined_rows() == sorted(
        (rule, line.encode("latin-1")) for rule, line in zip(rules, bad, strict=True)
    )


@pytest.mark.soak
def test_too_many_bad_messages_fail_the_table_and_nothing_is_written(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, n="int")
    fed.write(event(1, "c", {"id": 1, "n": 1}), event(2, "c", {"id": 2, "n": "x"}))
    report = fed.run(max_quarantined_fraction=0.4).tables[0]
    assert report.outcome == "failed" and report.failure_class == "bad input"
    assert "1 of 2 messages" in str(report.reason) and "n (int)" in str(report.reason)
    assert not lake.sql(f"SHOW TABLES IN lake.test LIKE '{fed.name.partition('.')[2]}'").collect()


@both_engines
def test_unreadable_messages_count_in_the_quarantined_fraction(lake: Lake, tmp_path: Path, engine: str) -> None:
    fed = Fed(lake, tmp_path, n="int")
    good = [event(n, "c", {"id": n, "n": n}) for n in range(18)]
    fed.write(*good, "{broken", '{"op": "z"}', event(18, "c", {"id": 18, "n": "x"}))
    report = fed.run(max_quarantined_fraction=0.14).tables[0]
    assert report.failure_class == "bad input" and "3 of 21 messages" in str(report.reason)
    assert not lake.spark.catalog.tableExists(f"lake.{fed.name}")
    report = fed.run(max_quarantined_fraction=0.143).tables[0]
    assert (report.outcome, report.metrics["quarantined"]) == ("done", 3), report.reason


@pytest.mark.parametrize("key", [pytest.param(["id"], marks=pytest.mark.soak), []])
def test_equal_messages_are_quarantined_and_replayed_one_by_one(lake: Lake, tmp_path: Path, key: list[str]) -> None:
    fed = Fed(lake, tmp_path, n="int")
    fed.target |= {"mode": "append", "key": key}
    bad = event(2, "c", {"id": 2, "n": "x"})
    fed.write(bad, event(1, "c", {"id": 1, "n": 1}), bad, "{broken", bad, "{broken")
    assert fed.run().tables[0].metrics["quarantined"] == 5
    assert fed.quarantined_rows() == sorted([("type", bad.encode())] * 3 + [("not-json", b"{broken")] * 2)
    fed.target["columns"]["n"] = "string"
    lake.sql(f"ALTER TABLE lake.{fed.name} ADD COLUMN m string")
    lake.sql(f"ALTER TABLE lake.{fed.name} DROP COLUMN n")
    lake.sql(f"ALTER TABLE lake.{fed.name} RENAME COLUMN m TO n")
    for _ in range(2):
        assert fed.run("replay_quarantine").tables[0].metrics["quarantined_still"] == 2
        assert fed.rows() == [(1, None), (2, "x"), (2, "x"), (2, "x")]
        assert fed.quarantined_rows() == [("not-json", b"{broken")] * 2


def test_a_replay_never_overwrites_newer_rows(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, n="int")
    fed.write(
        event(1, "c", {"id": 1, "n": 1}),
        event(2, "u", {"id": 1, "n": "12x"}),
        event(3, "c", {"id": 3, "n": "3x"}),
        event(4, "u", {"id": 1, "n": 4}),
        event(5, "c", {"id": 5, "n": "x5"}),
        event(6, "d", {"id": 5}),
    )
    fed.run()
    assert fed.rows() == [(1, 4)] and len(fed.quarantined_rows()) == 3
    # nothing has been corrected: all stay, once each
    still = fed.run("replay_quarantine").tables[0]
    assert still.metrics["quarantined_still"] == 3 and len(fed.quarantined_rows()) == 3
    lake.sql(f"ALTER TABLE lake.{fed.name} ADD COLUMN m string")
    lake.sql(f"UPDATE lake.{fed.name} SET m = CAST(n AS string)")
    lake.sql(f"ALTER TABLE lake.{fed.name} DROP COLUMN n")
    lake.sql(f"ALTER TABLE lake.{fed.name} RENAME COLUMN m TO n")
    fed.target["columns"]["n"] = "string"
    report = fed.run("replay_quarantine").tables[0]
    assert report.outcome == "done", report.reason
    # 1 had a newer state, 5 had been deleted
    assert fed.rows() == [(1, "4"), (3, "3x")]
    assert fed.quarantined_rows() == []
    assert fed.run("replay_quarantine").tables[0].outcome == "nothing"


def test_no_quarantine_has_excluded_columns_and_targets_may_have_separate_ones(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, n="int")
    fed.target["exclude_columns"] = ["ssn"]
    fed.write(
        event(1, "c", {"id": 1, "n": 1, "ssn": "078"}),
        event(2, "c", {"id": 2, "n": "many", "ssn": "078"}),
        '{"ssn": "078", "broken',
    )
    own, fed.quarantine = "{namespace}.{table}_kept", f"{fed.name}_kept"
    report = fed.run(quarantine_table=own).tables[0]
    assert report.metrics["quarantine_table"] == fed.quarantine
    stored = event(2, "c", {"id": 2, "n": "many"}).replace(" ", "").encode()
    assert fed.quarantined_rows() == [("not-json", None), ("type", stored)]
    # withheld rows stay, the rest are applied
    lake.sql(f"ALTER TABLE lake.{fed.name} DROP COLUMN n")
    lake.sql(f"ALTER TABLE lake.{fed.name} ADD COLUMN n string")
    fed.target["columns"]["n"] = "string"
    report = fed.run("replay_quarantine", quarantine_table=own).tables[0]
    assert report.outcome == "done", report.reason
    assert (2, "many") in lake.duckdb_rows(fed.name, "id, n")
    assert fed.quarantined_rows() == [("not-json", None)]


@pytest.mark.parametrize("shown", [False, True])
def test_values_are_reported_only_if_enabled(lake: Lake, shown: bool, caplog: pytest.LogCaptureFixture) -> None:
    place = f"{order_key(1, 5, 0, 0)} 078-05-1120"
    row = (place, "type", "values do not fit their columns: n", order_key(1, 5, 0, 0))
    rejected = lake.spark.createDataFrame([row], "place string, rule string, reason string, `order` string")
    batch = Batch(Target("test.t"), (), (), None, Position("test", "1", {}), rejected=Rejected(rejected, 1))
    with pytest.raises(InputError) as refused:
        quarantine.check_share(batch, IngestOptions(report_values=shown))
    assert ("078-05" in str(refused.value)) is shown
    with pytest.raises(Exception, match="CAST_INVALID_INPUT") as failed:
        lake.sql("SELECT CAST('078-05-1120' AS INT)").collect()
    caplog.clear()
    report = failure("test.t", failed.value, values=shown)
    assert report.failure_class == "bad input" and "CAST_INVALID_INPUT" in (report.reason or "")
    assert ("078-05" in (report.reason or "")) is shown
    assert ("078-05" in caplog.text) is shown


@pytest.mark.soak
def test_one_rule_can_be_replayed_alone(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, n="int")
    fed.write(event(1, "c", {"id": 1, "n": 1}), event(2, "c", {"id": 2, "n": "x"}), "{broken")
    fed.run()
    del fed.target["columns"]["n"]
    report = fed.run("replay_quarantine", rules=["not-json"]).tables[0]
    assert report.metrics["quarantined_before"] == 1
    assert len(fed.quarantined_rows()) == 2


def test_incomplete_row_is_quarantined_until_replay(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, n="int", doc="string")
    unchanged = "__debezium_unavailable_value"
    lost = event(5, "u", {"id": 2, "n": 5, "doc": unchanged})
    fed.write(event(1, "c", {"id": 1, "n": 1, "doc": "a"}), lost, event(6, "u", {"id": 1, "n": 6, "doc": unchanged}))
    report = fed.run(max_quarantined_fraction=0.4).tables[0]
    assert report.outcome == "done", report.reason
    assert report.metrics["quarantined"] == 1
    assert lake.duckdb_rows(fed.name, "id, n, doc") == [(1, 6, "a")]
    assert fed.quarantined_rows() == [("unchanged", lost.encode())]
    # a replay that changes nothing keeps it
    assert fed.run("replay_quarantine").tables[0].outcome != "failed"
    assert fed.quarantined_rows() == [("unchanged", lost.encode())]
    fed.write(event(2, "c", {"id": 2, "n": 2, "doc": "b"}), event(7, "u", {"id": 3, "n": 7, "doc": unchanged}))
    report = fed.run(max_quarantined_fraction=0.4).tables[0]
    assert "REPLICA IDENTITY FULL" in str(report.reason) and "1 of 2 messages" in str(report.reason)
    fed.run()
    report = fed.run("replay_quarantine").tables[0]
    assert report.outcome == "done", report.reason
    assert sorted(lake.duckdb_rows(fed.name, "id, n, doc")) == [(1, 6, "a"), (2, 5, "b")]
    assert [rule for rule, _ in fed.quarantined_rows()] == ["unchanged"]


@pytest.mark.parametrize("key", [("id",), pytest.param((), marks=pytest.mark.soak)], ids=["key", "no key"])
def test_rows_of_a_full_load_are_quarantined_once(lake: Lake, key: tuple[str, ...]) -> None:
    name, target = lake.new_name("quarantine"), Target("test.read", key=key)

    def read(position: int, *rows: tuple[int, str]) -> int:
        order = order_key(1, position, 0, RANK_READ)
        schema = "row struct<id: bigint, day: string>, op string, `order` string, source_time timestamp"
        frame = lake.spark.createDataFrame([(row, "r", order, None) for row in rows], schema)
        members = [F.col("row")[k].alias(k) for k in key] or [F.lit(None).cast("string").alias("none")]
        frame = frame.withColumns({"key": F.struct(*members), "open": F.lit(None).cast("array<string>")})
        frame = frame.withColumn("old_key", F.when(F.lit(False), F.col("key")))
        batch = Batch(target, key, (), Rows(frame), Position("test", "1", {}), full_load=True)
        rejected = quarantine.of_events(batch, frame, "clean", F.lit("bad"))
        assert rejected.count == len(rows)
        table = quarantine.create_quarantine(lake.spark, "lake", name)
        return quarantine.keep(table, replace(batch, rejected=rejected), None)

    assert read(5, (1, "a"), (2, "b"), *([] if key else [(2, "b")])) == (2 if key else 3)
    assert read(5, (1, "a"), (2, "b")) == 0
    # another snapshot shows their present values
    assert read(7, (1, "a"), (2, "c")) == 2
    text = "CAST(raw_value AS string)"
    rows = lake.sql(f"SELECT get_json_object({text}, '$.row.day') d, substr(order_key, 20, 1) o FROM lake.{name}")
    quarantined = sorted((row["d"], row["o"]) for row in rows.collect())
    assert quarantined == ([("a", "7"), ("c", "7")] if key else [("a", "7"), ("b", "5"), ("b", "5"), ("c", "7")])
