"""Operators record the outcome of each application they start."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_lakecdc.audit import AuditRow, health_history, history
from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError, LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake import assess_table
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.submit.documents import Documents
from airflow_provider_lakecdc.submit.spark_submit import SubmitOperator
from lakecdc.contract.report import now
from tests.airflow_provider_lakecdc.conftest import FakeSpark, TaskInstance, changed
from tests.airflow_provider_lakecdc.tables import FedTable

TABLES = ["shop.orders", "shop.items"]


def rewrite(**arguments: Any) -> RewriteDeleteFilesOperator:
    return RewriteDeleteFilesOperator(
        **{"task_id": "t", "catalog_conn_id": "lake", "tables": TABLES, "owner": "shop-team", **arguments}
    )


def by_table(catalog: CatalogConnection) -> dict[str, AuditRow]:
    """Rows of the audit; one per table."""
    rows = history(catalog)
    assert len({row.table for row in rows}) == len(rows)
    return {row.table: row for row in rows}


def test_the_reported_outcome_is_recorded(spark_submit: FakeSpark, context: Any, catalog: CatalogConnection) -> None:
    spark_submit.behave({"shop.items": {"outcome": "skipped", "reason": "too small", "metrics": {"core_seconds": 4}}})
    run = SimpleNamespace(run_type="manual", run_id="r", triggering_user_name="ada")
    context = changed(context, ti=TaskInstance(map_index=3, try_number=2), dag_run=run)
    rewrite(predicted_core_seconds={"rewrite_delete_files": {"shop.items": 5}}).execute(context)
    rows = by_table(catalog)
    orders, items = rows["shop.orders"], rows["shop.items"]
    assert (orders.dag_id, orders.run_id, orders.task_id, orders.map_index, orders.try_number) == ("d", "r", "t", 3, 2)
    assert (orders.owner, orders.triggering_user_name) == ("shop-team", "ada")
    assert (orders.job, orders.outcome, orders.spark_application_id) == ("rewrite_delete_files", "done", "local-1")
    assert (orders.snapshot_before, orders.snapshot_after) == ("9007199254740993", "9007199254740995")
    assert (orders.finished_at - orders.started_at).total_seconds() == 9
    assert (items.outcome, items.reason, items.core_seconds, items.predicted_core_seconds) == (
        *("skipped", "too small", 4.0, 5.0),
    )
    assert not orders.is_dry_run and orders.application == items.application


def test_an_application_without_a_report_is_recorded_as_failed(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection
) -> None:
    output = ("java.lang.OutOfMemoryError: Java heap space of postgresql://u:hunter2@h/d",)
    spark_submit.behave(report=False, exit=137, output=output)
    with pytest.raises(JobClusterError):
        rewrite().execute(context)
    rows = by_table(catalog)
    assert set(rows) == set(TABLES)
    assert {(row.outcome, row.failure_class, row.job) for row in rows.values()} == {
        ("failed", "cluster", "rewrite_delete_files")
    }
    reason = rows["shop.orders"].reason or ""
    assert "left no report" in reason and "Java heap space" in reason and "hunter2" not in reason


def test_tables_after_the_end_of_a_job_are_recorded_as_failed(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection
) -> None:
    spark_submit.behave(error="The catalog cannot be opened.", failure_class="cluster", text=json.dumps({
        "version": 1, "job": "rewrite_delete_files", "started_at": "2026-01-01T00:00:00.000+00:00",
        "finished_at": "2026-01-01T00:00:09.000+00:00", "error": "The catalog is gone.", "failure_class": "cluster",
        "tables": [{"table": "shop.orders", "outcome": "done"}],
    }))  # fmt: skip
    with pytest.raises(JobClusterError):
        rewrite().execute(context)
    rows = by_table(catalog)
    assert rows["shop.orders"].outcome == "done"
    assert (rows["shop.items"].outcome, rows["shop.items"].reason) == ("failed", "The catalog is gone.")


def test_a_task_that_times_out_is_recorded_as_failed(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowTaskTimeout

    def out_of_time(*_: Any) -> None:
        raise AirflowTaskTimeout("The task has run for an hour.")

    monkeypatch.setattr(SubmitOperator, "submit_and_wait", out_of_time)
    with pytest.raises(AirflowTaskTimeout):
        rewrite().execute(context)
    (row, _) = history(catalog)
    assert (row.outcome, row.failure_class) == ("failed", "unknown")
    assert "run for an hour" in (row.reason or "")


def test_the_row_of_a_killed_worker_notes_that_commits_remain(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_supervisor(*_: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(SparkSubmitHook, "submit", lose_the_supervisor)
    with pytest.raises(BrokenPipeError):
        rewrite().execute(context)
    (row, _) = history(catalog)
    assert row.outcome == "failed" and "pipe" not in str(row.reason)
    assert "process ended before the job reported" in str(row.reason) and "commits remain" in str(row.reason)


def test_health_measured_by_a_job_is_recorded_for_its_table(
    spark_submit: FakeSpark,
    context: Any,
    lake: dict[str, str],
    catalog: CatalogConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FedTable(lake).ingest(None)
    monkeypatch.setattr(assess_table, "MOST_FILES_OF_A_WORKER", 0)
    assessing = AssessTablesOperator(task_id="a", tables=["shop.orders"], catalog_conn_id="lake")
    assert assessing.assessed().tables[0].health is None
    health = {"score": 41.5, "lost": {"deletes": 40.0}, "data_files": 200_000, "rows": 7, "maintained_at": "long ago"}
    reported = [
        {"table": "shop.orders", "outcome": "nothing", "job": job, "metrics": {"health": {**health, "snapshots": n}}}
        for n, job in enumerate(("rewrite_delete_files", "compact_data_files"))
    ]
    spark_submit.behave(text=json.dumps({
        "version": 1, "job": "govern", "started_at": now(), "finished_at": now(), "tables": reported,
    }))  # fmt: skip
    rewrite(tables=["shop.orders"], look_first=False).execute(context)
    (row,) = health_history(catalog, "shop.orders")
    assert (row.score, row.data_files, row.facts["rows"], row.snapshots) == (41.5, 200_000, 7, 1)
    assessing.execute(context)
    (assessed,) = assessing.assessed().tables
    assert assessed.health and assessed.health.items() > {"score": 41.5, "lost": {"deletes": 40.0}, "rows": 7}.items()
    assert assessed.health["maintained_at"] is None and assessed.health["written_at"]
    assert assessed.measured_at and datetime.fromisoformat(assessed.measured_at) == row.measured_at
    # unchanged since that measurement
    assert len(health_history(catalog, "shop.orders")) == 1


def test_each_step_of_a_job_is_recorded(spark_submit: FakeSpark, context: Any, catalog: CatalogConnection) -> None:
    spark_submit.behave({"shop.orders": {"job": "sort_data_files"}})
    predicted = {"sort_data_files": {"shop.orders": 7.5}, "rewrite_delete_files": {"shop.orders": 1.0}}
    rewrite(tables=["shop.orders"], predicted_core_seconds=predicted).execute(context)
    (row,) = history(catalog)
    assert (row.job, row.predicted_core_seconds) == ("sort_data_files", 7.5)


def test_ingestion_and_dry_runs_are_recorded(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection, tmp_path: Path
) -> None:
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"}
    spark_submit.behave(report=False)
    operator = IngestOperator(
        task_id="t", catalog_conn_id="lake", source=source, targets=[{"table": "shop.orders", "key": ["id"]}]
    )
    with pytest.raises(LakecdcJobError):
        operator.execute(context)
    spark_submit.behave()
    rewrite(tables=["shop.items"], dry_run=True).execute(context)
    rows = by_table(catalog)
    assert (rows["shop.orders"].job, rows["shop.orders"].is_dry_run) == ("ingest", False)
    assert rows["shop.items"].is_dry_run


def test_without_an_application_no_row_is_recorded(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection, lake: dict[str, str]
) -> None:
    FedTable(lake).ingest(None)

    def expire(*tables: str) -> ExpireSnapshotsOperator:
        return ExpireSnapshotsOperator(task_id="t", catalog_conn_id="lake", tables=tables)

    assert expire("shop.orders").execute(context)["shop.orders"]["outcome"] == "nothing"
    with pytest.raises(JobBadInputError):
        rewrite(position_deletes="magic").execute(context)
    assert spark_submit.calls == [] and history(catalog) == []
    # nor does an idle table beside one that needs work
    expire("shop.orders", "shop.items").execute(context)
    assert [row.table for row in history(catalog)] == ["shop.items"]


def test_it_can_be_switched_off(
    spark_submit: FakeSpark, context: Any, catalog: CatalogConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__LAKECDC__AUDIT", "False")
    rewrite().execute(context)
    assert not catalog.load().namespace_exists("lakecdc")


@pytest.mark.sqlite
def test_an_audit_error_never_fails_a_task(
    spark_submit: FakeSpark, context: Any, tmp_path: Path, catalog: CatalogConnection
) -> None:
    (tmp_path / "catalog.db").write_text("This is no database, and longer than the header of one.")
    assert rewrite(look_first=False).execute(context)["shop.orders"]["outcome"] == "done"
    (document,) = (tmp_path / "documents" / "lakecdc_outbox").rglob("*.json")
    assert [row["table"] for row in json.loads(document.read_text())["rows"]] == TABLES


def test_an_application_taken_over_by_another_try_keeps_its_id(tmp_path: Path, context: Any) -> None:
    first, second = (
        Documents.of_try(f"file://{tmp_path}", changed(context, ti=TaskInstance(try_number=n))) for n in (1, 2)
    )
    first.write_spec("{}")
    first.write_application()
    assert first.read_application() == first.read_application()
    second.write_spec("{}")
    second.write_application()
    assert first.read_application()["id"] != second.read_application()["id"]
