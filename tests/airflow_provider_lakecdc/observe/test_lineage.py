"""Lineage that operators emit through Airflow's OpenLineage provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.utils.state import TaskInstanceState
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.uuid import generate_new_uuid

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.governance.precheck import Precheck
from airflow_provider_lakecdc.observe.lineage import place_name, source_names
from airflow_provider_lakecdc.operators import base
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.check_tables import CheckTablesOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.export_changes import ExportChangesOperator
from airflow_provider_lakecdc.operators.govern import GovernOperator
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.operators.reconcile import ReconcileOperator
from airflow_provider_lakecdc.operators.scd2 import Scd2Operator
from lakecdc.contract.sources import parse_source
from lakecdc.contract.target import parse_targets
from tests.airflow_provider_lakecdc.conftest import FakeSpark
from tests.airflow_provider_lakecdc.tables import FedTable

Context = Any
LineageOf = Callable[..., OperatorLineage[Any, Any]]
ORDERS = [{"table": "shop.orders", "key": ["id"]}]
POSTGRES = {"type": "postgres", "dsn": "host=db.example.com dbname=web user=reader", "slot": "s"}
DRY = {"dry_run": True}
WRITTEN: dict[str, Any] = {"metrics": {"rows_written": 7, "bytes_written": 900, "data_files": 2}}
ARGUMENTS: dict[str, Any] = {"task_id": "t", "catalog_conn_id": "lake", "look_first": False}


@pytest.fixture
def lineage_of(
    spark_submit: FakeSpark, context: Context, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> LineageOf:
    """Return a function that executes an operator over real tables and returns the extracted lineage."""
    # no server listens at the source's address
    monkeypatch.setattr(base, "precheck_source", lambda *given, **how: Precheck())
    for name in ("shop.orders", "shop.orders_history", "shop.versions"):
        FedTable(lake, name)

    def emitted_lineage(operator: LakecdcJobOperator, /, **reported: Any) -> OperatorLineage[Any, Any]:
        spark_submit.behave({"shop.orders": reported} if reported else {})
        has_failed = reported.get("outcome") == "failed"
        with pytest.raises(LakecdcJobError) if has_failed else nullcontext():
            operator.execute(context)
        state = TaskInstanceState.FAILED if has_failed else TaskInstanceState.SUCCESS
        return ExtractorManager().extract_metadata(SimpleNamespace(run_id="r"), operator, state, context["ti"])

    return emitted_lineage


def names(datasets: list[Any]) -> list[tuple[str, str]]:
    return [(dataset.namespace, dataset.name) for dataset in datasets]


def located(tmp_path: Path, table: str) -> tuple[str, str]:
    """Return the namespace and name of a table of the test's catalog."""
    return "file", f"{tmp_path}/warehouse/shop/{table}"


def test_an_ingest_reads_its_source_and_writes_a_table_with_columns_rows_and_snapshot(
    lineage_of: LineageOf, tmp_path: Path
) -> None:
    lineage = lineage_of(IngestOperator(source=POSTGRES, targets=ORDERS, **ARGUMENTS), **WRITTEN)
    assert names(lineage.inputs) == [("postgres://db.example.com:5432", "web.shop.orders")]
    (output,) = lineage.outputs
    assert names([output]) == [located(tmp_path, "orders")]
    assert [(field.name, field.type) for field in output.facets["schema"].fields] == [("id", "long")]
    assert output.facets["version"].datasetVersion == "9007199254740995"
    (identifier,) = output.facets["symlinks"].identifiers
    assert (identifier.namespace, identifier.name) == (f"sqlite:///{tmp_path}/catalog.db", "shop.orders")
    statistics = output.outputFacets["outputStatistics"]
    assert (statistics.rowCount, statistics.size, statistics.fileCount) == (7, 900, 2)


def test_a_history_table_is_written_too(lineage_of: LineageOf, tmp_path: Path) -> None:
    targets = [{**ORDERS[0], "history_table": "shop.orders_history"}]
    metrics = {**WRITTEN["metrics"], "history_rows": 9, "history_data_files": 1}
    lineage = lineage_of(IngestOperator(source=POSTGRES, targets=targets, **ARGUMENTS), metrics=metrics)
    assert names(lineage.outputs) == [located(tmp_path, "orders"), located(tmp_path, "orders_history")]
    assert [output.outputFacets["outputStatistics"].rowCount for output in lineage.outputs] == [7, 9]


def test_commits_before_a_failure_are_reported(lineage_of: LineageOf, tmp_path: Path) -> None:
    failed = {"outcome": "failed", "failure_class": "unknown", "reason": "x", **WRITTEN}
    lineage = lineage_of(IngestOperator(source=POSTGRES, targets=ORDERS, **ARGUMENTS), **failed)
    assert names(lineage.outputs) == [located(tmp_path, "orders")]
    assert names(lineage.inputs) == [("postgres://db.example.com:5432", "web.shop.orders")]


@pytest.mark.parametrize(
    ("reported", "arguments"),
    [({"outcome": "nothing", "snapshot_before": None, "snapshot_after": None}, {}), ({}, {"dry_run": True})],
    ids=["nothing", "dry run"],
)
def test_unchanged_tables_have_no_lineage(lineage_of: LineageOf, reported: Any, arguments: Any) -> None:
    lineage = lineage_of(CompactDataFilesOperator(tables=["shop.orders"], **ARGUMENTS, **arguments), **reported)
    assert lineage.inputs == lineage.outputs == []


def test_a_missing_table_has_no_lineage(lineage_of: LineageOf) -> None:
    assert lineage_of(CompactDataFilesOperator(tables=["shop.gone"], **ARGUMENTS)).outputs == []


def test_a_job_without_a_report_emits_nothing(lineage_of: LineageOf) -> None:
    operator = CompactDataFilesOperator(tables=["shop.orders"], **ARGUMENTS)
    assert operator.get_openlineage_facets_on_complete(None) is None


def test_checks_and_comparisons_only_read(lineage_of: LineageOf, tmp_path: Path) -> None:
    passed = {"outcome": "nothing", "reason": "all checks have passed"}
    checks = {"shop.orders": [{"type": "not_null", "columns": ["id"]}]}
    lineage = lineage_of(CheckTablesOperator(tables=["shop.orders"], checks=checks, **ARGUMENTS), **passed)
    assert (names(lineage.inputs), lineage.outputs) == ([located(tmp_path, "orders")], [])
    source = {"type": "iceberg"}
    targets = [{**ORDERS[0], "source_table": "shop.versions"}]
    lineage = lineage_of(ReconcileOperator(source=source, targets=targets, **ARGUMENTS), **passed)
    assert names(lineage.inputs) == [located(tmp_path, "orders"), located(tmp_path, "versions")]
    assert lineage.outputs == []


@pytest.mark.parametrize("destination", ["table", "folder"])
def test_changes_go_from_the_table_to_their_destination(
    lineage_of: LineageOf, tmp_path: Path, destination: str
) -> None:
    where = {"table": "shop.versions"} if destination == "table" else {"folder": "s3://bucket/changes/orders"}
    operator = ExportChangesOperator(tables=["shop.orders"], destinations={"shop.orders": where}, **ARGUMENTS)
    lineage = lineage_of(operator, metrics={"rows_written": 4, "files_written": 1, "exported_as": "42"})
    assert names(lineage.inputs) == [located(tmp_path, "orders")]
    expected = located(tmp_path, "versions") if destination == "table" else ("s3://bucket", "changes/orders")
    assert names(lineage.outputs) == [expected]
    assert lineage.outputs[0].outputFacets["outputStatistics"].rowCount == 4


def test_versions_come_from_the_history_table(lineage_of: LineageOf, tmp_path: Path) -> None:
    operator = Scd2Operator(
        tables=["shop.orders"],
        history_tables={"shop.orders": "shop.orders_history"},
        dimensions={"shop.orders": "shop.versions"},
        **ARGUMENTS,
    )
    lineage = lineage_of(operator, outcome="done", snapshot_before=None, snapshot_after=None)
    assert names(lineage.inputs) == [located(tmp_path, "orders_history")]
    assert names(lineage.outputs) == [located(tmp_path, "versions")]


def test_an_aggregated_table_has_its_history_table_as_input(lineage_of: LineageOf, tmp_path: Path) -> None:
    merge = {"engine": "aggregate", "group_by": ["id"], "columns": {"rows": "count(*)"}}
    targets = [{"table": "shop.orders", "key": ["id"], "history_table": "shop.orders_history", "merge": merge}]
    lineage = lineage_of(IngestOperator(source=POSTGRES, targets=targets, **ARGUMENTS), **WRITTEN)
    assert names(lineage.inputs) == [located(tmp_path, "orders_history")]
    assert names(lineage.outputs) == [located(tmp_path, "orders")]


def test_steps_are_reported_as_separate_jobs(lineage_of: LineageOf, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"job": "compact_data_files"},
        {"job": "expire_snapshots", "options": DRY},
    ]
    lineage = lineage_of(GovernOperator(tables=["shop.orders"], steps=steps, **ARGUMENTS))
    assert names(lineage.outputs) == [located(tmp_path, "orders")]


def test_the_clients_transport_accepts_it(lineage_of: LineageOf, tmp_path: Path) -> None:
    lineage = lineage_of(IngestOperator(source=POSTGRES, targets=ORDERS, **ARGUMENTS), **WRITTEN)
    path = tmp_path / "events.json"
    client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(path), append=True)))
    event = RunEvent(
        eventTime=datetime.now(UTC).isoformat(),
        producer="https://example.com",
        eventType=RunState.COMPLETE,
        run=Run(str(generate_new_uuid())),
        job=Job("airflow", "d.t"),
        inputs=[*lineage.inputs],
        outputs=[*lineage.outputs],
    )
    client.emit(event)
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert line["inputs"][0]["name"] == "web.shop.orders"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (POSTGRES, {"source_table": "public.o"}, [("postgres://db.example.com:5432", "web.public.o")]),
        ({**POSTGRES, "dsn": "postgresql://r@h:6000/web"}, {}, [("postgres://h:6000", "web.shop.orders")]),
        ({"type": "mysql", "host": "m", "user": "u"}, {}, [("mysql://m:3306", "shop.orders")]),
        ({"type": "mysql", "host": "m", "user": "u", "database": "web"}, {}, [("mysql://m:3306", "web.orders")]),
        (
            {"type": "jdbc", "url": "jdbc:postgresql://h/web", "cursor_column": "t"},
            {},
            [("postgres://h:5432", "web.shop.orders")],
        ),
        ({"type": "jdbc", "url": "jdbc:mysql://h:1/x", "cursor_column": "t"}, {}, [("mysql://h:1", "shop.orders")]),
        ({"type": "jdbc", "url": "jdbc:sqlite:/a.db", "cursor_column": "t"}, {}, []),
        ({"type": "kafka", "bootstrap_servers": "b:9092,c:9092", "topics": ["x"]}, {}, [("kafka://b:9092", "read")]),
        ({"type": "files", "path": "s3a://bucket/in/*.jsonl"}, {}, [("s3://bucket", "in")]),
        ({"type": "files", "path": ["/in/a", "file:///in/b"]}, {}, [("file", "/in/a"), ("file", "/in/b")]),
        (POSTGRES, {"table": "lake.{table}", "source_tables": [".*"]}, []),
        (
            POSTGRES,
            {"table": "{schema}.{table}", "source_tables": [".*"]},
            [("postgres://db.example.com:5432", "web.shop.orders")],
        ),
    ],
)
def test_sources_have_the_names_of_the_specification(source: Any, target: Any, expected: list[Any]) -> None:
    targets = parse_targets({**ORDERS[0], **target})
    if source["type"] in ("kafka", "files"):
        source = {**source, "format": "debezium-json"}
    if source["type"] == "jdbc":
        source = {**source, "interval": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"}}
    metrics: dict[str, Any] = {"position": {"topics": {"read": {}}}}
    assert source_names(parse_source(source, targets), targets[0], "shop.orders", metrics) == expected


def test_stores_are_namespaces() -> None:
    assert place_name("gs://bucket/a/b/") == ("gs://bucket", "a/b")
    assert place_name("file:///a%20b/c") == ("file", "/a b/c")
