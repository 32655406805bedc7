"""Files of plain events read, folded and written by tasks give the same table as the JVM."""

from __future__ import annotations

import gzip
import json
import os
import random
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.apply import packed
from lakecdc.ingest.engine import pieces
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import ENGINES, with_engine

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = {"id": "bigint", "code": "string", "amount": "decimal(12,2)", "at": "timestamp", "day": "date", "ok": "boolean"}
TYPES |= {"raw": "binary", "price": "decimal(20,4)", "rate": "decimal(38,18)", "clock": "string"}
ENCODINGS = {"price": "decimal_bytes", "clock": "time_micros"}
# each engine numbers arrivals, the last part of the order key, in its own way
QUARANTINE_COLUMNS = "rule, reason, place, raw_value"
SAME = 'id, code, amount, "at", day, ok, raw, price, rate, clock, substr(_lakecdc_order, 1, 49), _lakecdc_source_time'


def event(rng: random.Random, lsn: int) -> dict[str, Any]:
    op, key = rng.choice("cuud"), rng.randrange(40)
    row = {"id": key, "code": rng.choice(["a", "é{", ""]), "amount": lsn / 4, "at": "2024-01-02T03:04:05.5+02:00"}
    row |= {"day": "2024-02-29", "ok": rng.choice([True, None]), "rate": f"-1234567890.{lsn:018d}"}
    price = b64encode((lsn - 60).to_bytes(2, "big", signed=True)).decode()
    row |= {"raw": rng.choice(["", "3q2+7w==", None]), "price": price, "clock": 1_000_000 * lsn + 5}
    source = {"connector": "postgresql", "schema": "shop", "table": "t", "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


def take(lake: Lake, folder: Path, name: str, engine: str, **target: Any) -> TableReport:
    source = {"type": "files", "path": f"{folder}/*", "format": "debezium-json"}
    target_document = {"table": name, "source_table": "t", "columns": TYPES, "encodings": ENCODINGS, **target}
    with with_engine(engine):
        report = run(parse_spec(lake.spec("ingest", source=source, target=target_document)), ingest)
    assert not report.error and report.tables[0].outcome == "done", report.error or report.tables[0].reason
    return report.tables[0]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param({"key": ["id"], "partition_by": ["bucket(3, id)"]}, marks=pytest.mark.soak),
        {"key": ["id", "code"], "partition_by": ["bucket(2, code)", "bucket(2, id)"], "format_version": 3},
        pytest.param({"key": ["id"], "partition_by": ["truncate(10, id)"]}, marks=pytest.mark.soak),
    ],
)
def test_both_engines_leave_the_same_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: dict[str, Any]
) -> None:
    monkeypatch.setattr("lakecdc.ingest.engine.pieces._SMALLEST", 2000)
    rng, names = random.Random(str(target)), {engine: lake.new_name(engine) for engine in ENGINES}
    events = [event(rng, lsn) for lsn in range(1, 121)]
    # the second batch has repetitions, late events and odd ones as well
    late = events[20:30] + events[90:]
    rng.shuffle(late)
    odd = [event(rng, lsn) for lsn in (40, 200, 201)]
    for one, values in zip(odd, ({"new": "late"}, {"new": "x"}, {"day": "never"}), strict=True):
        one |= {"op": "u", "before": None, "after": {**(one["after"] or one["before"]), **values}}
    for number, part in enumerate((events[:20] + events[30:90], late)):
        lines = [json.dumps(e) + "\n" for e in part]
        lines[3:3] = [*(json.dumps(e) + "\n" for e in odd), "é is not JSON\n"] if number else []
        (tmp_path / f"{number}.jsonl").write_text("".join(lines[::2]))
        (tmp_path / f"{number}b.jsonl.gz").write_bytes(gzip.compress("".join(lines[1::2]).encode()))
        reports = {engine: take(lake, tmp_path, name, engine, **target) for engine, name in names.items()}
        auto, by_spark = reports["tasks"].metrics, reports["spark"].metrics
        more = ", then another over 1 of the messages: text that is not JSON" if number else ""
        assert auto["decoding"] == f"one pass{more}" and by_spark["decoding"] == "two passes: required by the test"
        same = ("events", "keys", "events_c", "events_u", "events_d", "rows_written", "read_through")
        assert {name: auto[name] for name in same} == {name: by_spark[name] for name in same}
    rows = [sorted(lake.duckdb_rows(name, f"{SAME}, new"), key=str) for name in names.values()]
    assert rows[0] == rows[1] and len(rows[0]) > 10 and {row[-1] for row in rows[0]} >= {"x"}
    quarantined = lake.duckdb_rows(reports["tasks"].metrics["quarantine_table"], f"target, {QUARANTINE_COLUMNS}")
    quarantined_rows = [sorted(row for target, *row in quarantined if target == name) for name in names.values()]
    assert quarantined_rows[0] == quarantined_rows[1] and len(quarantined_rows[0]) == 2


def test_lines_of_files_are_not_searched_for_repeated_events(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(_: object) -> None:
        raise AssertionError("each line has a separate order key")

    monkeypatch.setattr(packed, "hashes_of_events", search)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(event(random.Random(2), lsn)) + "\n" for lsn in range(1, 9)))
    name = lake.new_name("tasks")
    take(lake, tmp_path, name, "tasks", key=["id"], history_table=f"{name}_log")
    assert len(lake.duckdb_rows(f"{name}_log", "id")) == 8


EVERY_TRANSFORM = ["code", "truncate(1, code)", "bucket(3, price)", "truncate(7, id)", "day", "years(day)"]
EVERY_TRANSFORM += ["months(at)", "truncate(500, amount)"]
NULLS = ["ok", "bucket(2, raw)", "truncate(1, code)", "hours(_lakecdc_source_time)", "_lakecdc_op"]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param({"key": ["id"], "partition_by": ["bucket(2, id)"]}, marks=pytest.mark.soak),
        {"key": ["id", "code", "price", "day", "at", "amount"], "partition_by": EVERY_TRANSFORM},
        pytest.param({"mode": "history", "key": ["id"], "partition_by": NULLS}, marks=pytest.mark.soak),
    ],
    ids=["buckets", "every transform", "nulls"],
)
def test_files_of_tasks_have_the_metrics_of_icebergs_writer(lake: Lake, tmp_path: Path, target: dict[str, Any]) -> None:
    rng, names = random.Random(1), {engine: lake.new_name(engine) for engine in ENGINES}
    events = [event(rng, lsn) for lsn in range(1, 60)]
    for one in events[:10]:
        (one["after"] or one["before"])["code"] = "__HIVE_DEFAULT_PARTITION__"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    described = {}
    for engine, name in names.items():
        take(lake, tmp_path, name, engine, properties={BLOOM: "true"}, **target)
        columns = [f"readable_metrics.{c}.{b}" for c in TYPES if c not in ("day", "clock") for b in BOUNDS]
        files = lake.sql(
            f"SELECT content, to_json(partition), record_count, equality_ids, {', '.join(columns)}, "
            f"substr(readable_metrics._lakecdc_order.lower_bound, 1, 49) FROM lake.{name}.files"
        )
        described[engine] = sorted((tuple(row) for row in files.collect()), key=str)
    assert described["tasks"] == described["spark"]
    written = [row[0] for row in lake.sql(f"SELECT file_path FROM lake.{names['tasks']}.data_files").collect()]
    # Iceberg's own writer names files by its tasks
    assert all(Path(file).stem.count("-") == 4 and _has_bloom_filter(file, "code") for file in written)


BLOOM = "write.parquet.bloom-filter-enabled.column.code"


def _has_bloom_filter(location: str, column: str) -> bool:
    import pyarrow.parquet as pq

    footer = pq.read_metadata(location.removeprefix("file:"))
    chunks = [footer.row_group(0).column(place) for place in range(footer.num_columns)]
    return any(chunk.path_in_schema == column and chunk.bloom_filter_offset for chunk in chunks)


BOUNDS = ("lower_bound", "upper_bound", "null_value_count", "value_count")


@dataclass(frozen=True)
class Cutting(pieces.Lines):
    """Reads files that are truncated once a task has decoded their first lines."""

    driver: int = os.getpid()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in super().__call__(batches):
            if os.getpid() != self.driver:
                os.truncate(self.tasks[0][0].path, 10)
            yield batch


def test_a_file_truncated_during_reading_is_named(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, plan = lake.new_name("tasks"), pieces.plan
    text = json.dumps(event(random.Random(1), 1)) + "\n"
    (tmp_path / "a.jsonl").write_text(text * (12 * 1024 * 1024 // len(text)))

    def cutting(*settings: Any) -> tuple[pieces.Lines, int]:
        planned = plan(*settings)
        assert planned is not None
        return Cutting(planned[0].tasks), planned[1]

    monkeypatch.setattr(pieces, "plan", cutting)
    source = {"type": "files", "path": f"{tmp_path}/*", "format": "debezium-json"}
    target = {"table": name, "source_table": "t", "key": ["id"], "columns": TYPES, "encodings": ENCODINGS}
    (report,) = run(parse_spec(lake.spec("ingest", source=source, target=target)), ingest).tables
    assert report.failure_class == "bad input"
    assert f"{tmp_path}/a.jsonl had at least" in str(report.reason) and "now has 10" in str(report.reason)
