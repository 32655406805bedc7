"""Tables of one run are written in parallel, by a session with new threads, into a new namespace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.contract.spec import Catalog, parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.session import use_catalog
from tests.conftest import CATALOG, Lake

TABLES = 4


@pytest.fixture
def fresh(lake: Lake) -> SparkSession:
    """Return a session that has opened only the lake's catalog, like every job's session at its start."""
    session = lake.spark.newSession()
    use_catalog(session, Catalog(CATALOG, lake.properties))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def event(lsn: int, table: str, row: dict[str, Any]) -> str:
    source = {"connector": "postgresql", "schema": "s", "table": table, "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    return json.dumps({"op": "c", "before": None, "after": row, "source": source})


def test_only_the_table_that_cannot_be_decoded_fails(lake: Lake, tmp_path: Path) -> None:
    rows: dict[str, dict[str, Any]] = {"t0": {"id": 1}, "t1": {"id": 1}, "t2": {"id": 1.5}, "t3": {"id": 1, "_pos": 1}}
    (tmp_path / "a.jsonl").write_text("\n".join(event(n, t, row) for n, (t, row) in enumerate(rows.items(), 1)))
    names = [lake.new_name("alone") for _ in rows]
    targets: list[dict[str, Any]] = [
        {"table": n, "key": ["id"], "source_table": f"s.{t}"} for n, t in zip(names, rows, strict=True)
    ]
    targets[1]["columns"] = {"id": "no such type"}
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"}
    reports = ingest(lake.spark, parse_spec(lake.spec("ingest", source=source, target=targets)))
    assert [r.outcome for r in reports] == ["done", "failed", "failed", "failed"]
    assert "of type double" in str(reports[2].reason) and "['_pos']" in str(reports[3].reason)
    assert [lake.spark.catalog.tableExists(f"lake.{name}") for name in names] == [True, False, False, False]


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_only_the_table_with_unreadable_metadata_fails(lake: Lake, tmp_path: Path, beside: bool) -> None:
    names = [lake.new_name("sound"), lake.new_name("broken")]
    targets: list[dict[str, Any]] = [
        {"table": name, "key": ["id"], "source_table": f"s.t{n}"} for n, name in enumerate(names)
    ]
    if beside:
        targets[1]["history_table"] = f"{names[1]}_log"
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"}
    spec = parse_spec(lake.spec("ingest", source=source, target=targets))
    for batch, expected in enumerate((["done", "done"], ["done", "failed"])):
        (tmp_path / f"{batch}.jsonl").write_text(
            "\n".join(event(9 * batch + n, f"t{n}", {"id": batch}) for n in (0, 1))
        )
        restore = lake.break_metadata(targets[1].get("history_table", names[1])) if batch else None
        reports = ingest(lake.spark, spec)
        assert [r.outcome for r in reports] == expected, [r.reason for r in reports]
    assert restore is not None and "Cannot load the table" in str(reports[1].reason)
    restore()
    assert [r.outcome for r in ingest(lake.spark, spec)] == ["nothing", "done"]
    assert [sorted(lake.duckdb_rows(name, "id")) for name in names] == [[(0,), (1,)]] * 2


def spec_of(lake: Lake, folder: Path, namespace: str, **options: Any) -> Any:
    targets = [{"table": f"{namespace}.t{n}", "key": ["id"], "source_table": f"s.t{n}"} for n in range(TABLES)]
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json"}
    options = {"parallel_tables": TABLES, **options}
    return parse_spec(lake.spec("ingest", source=source, target=targets, options=options))


@pytest.mark.soak
@pytest.mark.parametrize("attempt", [0, 1])
def test_new_tables_are_written_in_parallel(lake: Lake, fresh: SparkSession, tmp_path: Path, attempt: int) -> None:
    namespace = lake.new_name("at_once").replace("test.", "parallel_")
    spec = spec_of(lake, tmp_path, namespace)
    for batch in range(2):
        events = [event(10 * batch + n, f"t{n}", {"id": batch, "n": n}) for n in range(TABLES)]
        (tmp_path / f"{batch}.jsonl").write_text("\n".join(events))
        reports = ingest(fresh, spec)
        assert [(r.outcome, r.reason) for r in reports] == [("done", None)] * TABLES
    for n in range(TABLES):
        assert sorted(lake.duckdb_rows(f"{namespace}.t{n}", "id, n")) == [(0, n), (1, n)]


def test_tables_may_share_a_new_quarantine(lake: Lake, fresh: SparkSession, tmp_path: Path) -> None:
    namespace = lake.new_name("at_once").replace("test.", "parallel_")
    events = [event(n, f"t{n}", {"id": 1, "n": n}) for n in range(TABLES)]
    wrong = [event(50 + n, f"t{n}", {"n": n}) for n in range(TABLES)]
    (tmp_path / "a.jsonl").write_text("\n".join([*events, *wrong]))
    reports = ingest(fresh, spec_of(lake, tmp_path, namespace, max_quarantined_fraction=1))
    assert [(r.outcome, r.reason) for r in reports] == [("done", None)] * TABLES
    assert [r.metrics["quarantined"] for r in reports] == [1] * TABLES
    quarantined = lake.duckdb_rows(f"{namespace}.lakecdc_quarantine", "target")
    assert sorted(quarantined) == [(f"{namespace}.t{n}",) for n in range(TABLES)]
