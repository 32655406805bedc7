"""First batches that define no columns of a table: it is created with the first row, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.formats.decoding import decode_lines
from tests.on_demand import on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRUNCATE = 5


class Fed:
    """A table fed from dumped records; every file is a separate batch."""

    def __init__(self, lake: Lake, folder: Path, **target: Any) -> None:
        self.lake, self.folder = lake, folder
        self.name, self.quarantine = lake.new_name("new"), lake.new_name("quarantine")
        self.target = {"table": self.name, "source_table": "t", **target}
        self.offset = 0

    def write(self, *records: dict[str, Any]) -> None:
        lines = []
        for record in records:
            place = {"topic": "pg.shop.t", "partition": 0, "offset": self.offset, "headers": [], "key": None}
            lines.append(json.dumps({**place, "value": None, **record}))
            self.offset += 1
        (self.folder / f"{self.offset:03}.jsonl").write_text("\n".join(lines) + "\n")

    def run(self, **options: Any) -> TableReport:
        source = {"path": f"{self.folder}/*.jsonl", "format": "debezium-json", "records": "kafka", "max_batch_bytes": 1}
        options = {"quarantine_table": self.quarantine, "max_quarantined_fraction": 1.0, **options}
        spec = self.lake.spec("ingest", source={"type": "files", **source}, target=self.target, options=options)
        report = run(parse_spec(spec), ingest)
        assert not report.error, report.error
        return report.tables[0]

    @property
    def exists(self) -> bool:
        return bool(self.lake.spark.catalog.tableExists(f"lake.{self.name}"))


def event(lsn: int, op: str, number: int | None = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "shop", "table": "t", "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    row = {"id": number, "n": lsn}
    images = {"before": None, "after": row if op in "cu" else None}
    return {"key": {"id": number} if number else None, "value": {"op": op, **images, "source": source}}


@pytest.fixture
def fed(lake: Lake, tmp_path: Path) -> Fed:
    return Fed(lake, tmp_path, key=["id"])


def test_a_truncate_before_any_row_creates_no_table_and_drops_older_rows(fed: Fed) -> None:
    fed.write(event(TRUNCATE, "t"), {"key": {"id": 3}}, {"value": "{broken"})
    assert fed.run(dry_run=True).outcome == "nothing"
    for _ in range(2):
        report = fed.run()
        assert report.outcome == "nothing", report.reason
        assert not fed.exists
    # a separate tombstone, then late rows and new ones
    fed.write({"key": {"id": 4}})
    fed.write(event(TRUNCATE - 1, "c", 1), event(TRUNCATE + 1, "c", 2))
    report = fed.run()
    assert (report.outcome, report.metrics["commits"]) == ("done", 1), report.reason
    assert fed.lake.duckdb_rows(fed.name, "id, n") == [(2, TRUNCATE + 1)]
    assert fed.lake.duckdb_rows(fed.quarantine, "rule, raw_value") == [("not-json", b"{broken")]
    # the delete is remembered beyond the run, as is the next one, alone in its batch
    fed.write(event(TRUNCATE - 2, "c", 5), event(TRUNCATE + 2, "c", 6))
    fed.write(event(TRUNCATE + 3, "t"))
    report = fed.run()
    assert (report.outcome, report.metrics["commits"]) == ("done", 2), report.reason
    assert fed.lake.duckdb_rows(fed.name, "id, n") == []


def test_deletes_without_rows_define_the_key_and_are_remembered(fed: Fed) -> None:
    fed.write(event(3, "d", 7), event(2, "d"))
    report = fed.run()
    assert (report.outcome, report.metrics["quarantined"]) == ("done", 1), report.reason
    fed.write(event(1, "c", 7), event(4, "c", 8))
    assert fed.run().outcome == "done"
    assert fed.lake.duckdb_rows(fed.name, "id, n") == [(8, 4)]
    assert fed.lake.duckdb_rows(fed.quarantine, "rule") == [("no-key",)]


@pytest.mark.soak
def test_the_row_of_an_early_truncate_is_in_the_change_log(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, mode="history")
    fed.write(event(TRUNCATE, "t"))
    assert fed.run().outcome == "nothing" and not fed.exists
    fed.write(event(TRUNCATE + 1, "c", 2))
    assert fed.run().outcome == "done"
    assert sorted(lake.duckdb_rows(fed.name, "_lakecdc_op, id"), key=str) == [("c", 2), ("t", None)]


@both_engines
@pytest.mark.parametrize("key", on_demand(("", "id"), in_ci=("",)))
def test_json_rows_are_appended(lake: Lake, tmp_path: Path, engine: str, key: str) -> None:
    name = lake.new_name("appended")
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "json"}
    target = {"table": name, "mode": "append", "key": [key] if key else []}
    spec = parse_spec(lake.spec("ingest", source=source, target=target))
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_text('{"id": 1, "v": "x"}\n{"id": 1, "v": "x"}\n{"id": 2, "v": null}\n')
        report = run(spec, ingest).tables[0]
        assert report.outcome == "done" and report.metrics["events_c"] == 3, report.reason
    assert sorted(lake.duckdb_rows(name, "id, v"), key=str) == [(1, "x")] * 4 + [(2, None)] * 2


@pytest.mark.soak
def test_a_refused_table_is_not_created(fed: Fed) -> None:
    fed.target |= {"mode": "append"}
    fed.write(event(1, "c", 1), event(2, "u", 1))
    report = fed.run()
    assert report.failure_class == "bad input" and "mode append can only add rows" in str(report.reason)
    assert not fed.exists


def test_a_lone_truncate_needs_no_key(spark: SparkSession) -> None:
    lines, target = [json.dumps({"topic": "pg.shop.t", "headers": [], **event(TRUNCATE, "t")})], Target("shop.t")
    decoded = decode_lines(spark, "debezium-json", lines, target, records=True)
    assert decoded.rows is None and decoded.truncate_order
    known = Known({"id": "bigint", "n": "bigint"}, key=("id",))
    decoded = decode_lines(spark, "debezium-json", lines, target, known, records=True)
    assert decoded.rows is not None and decoded.key == ("id",) and decoded.truncate_order


def test_lines_may_end_with_carriage_returns(lake: Lake, tmp_path: Path) -> None:
    lines = [json.dumps(event(number, "c", number)["value"]) for number in (1, 2)]
    (tmp_path / "old.jsonl").write_bytes("\r".join(lines).encode() + b"\n")
    name = lake.new_name("new")
    source = {"type": "files", "path": f"{tmp_path}/*", "format": "debezium-json"}
    target = {"table": name, "source_table": "t", "key": ["id"]}
    report = run(parse_spec(lake.spec("ingest", source=source, target=target)), ingest)
    assert not report.error, report.error
    assert lake.duckdb_rows(name, "id, n") == [(1, 1), (2, 2)]
