"""The report of a task's job, read from the run's data in Airflow's database."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from airflow.api_fastapi.app import get_auth_manager
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import delete, update

from airflow_provider_lakecdc.audit import Application, Run, record_application
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.page.history import Task
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.rendering import render
from airflow_provider_lakecdc.page.report import report_of
from airflow_provider_lakecdc.templates.config import LakeConfig
from lakecdc.contract.report import JobReport, TableReport
from lakecdc.metadata.cost import Prices
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, FakeSpark, Install
from tests.airflow_provider_lakecdc.page.test_parts import words

DAG = """
from airflow.sdk import DAG
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator

with DAG("shop.lake", schedule=None):
    CompactDataFilesOperator(
        task_id="compact", tables=["shop.orders", "shop.items"], catalog_conn_id="lake", look_first=False
    )
"""
PROGRESS = (
    "2026-01-01 00:00:05,123 INFO lakecdc.runtime.progress: progress of shop.orders: 1 of 2 file groups, 5 minutes left"
)
BEGUN, ENDED = "2026-01-01T00:00:00.000+00:00", "2026-01-01T00:01:00.000+00:00"
#: facts of a job that compacted a table
METRICS = {
    "data_files_before": 12,
    "data_files_after": 3,
    "core_seconds": 7.2,
    "rows": 4000,
    "verified": "all rows, 2 of 2 columns",
}


def behave(spark_submit: FakeSpark) -> None:
    """Let a job compact one table and fail for another."""
    failed = {"outcome": "failed", "failure_class": "bad input", "reason": "<script>alert(1)</script>"}
    tables: dict[str, dict[str, Any]] = {"shop.orders": {"metrics": METRICS}, "shop.items": {**failed, "metrics": {}}}
    spark_submit.behave(tables, exit=4, output=(PROGRESS,))


@pytest.fixture
def task(install: Install, spark_submit: FakeSpark, lake: dict[str, str]) -> dict[str, str]:
    """Run a task that fails for one of its two tables."""
    behave(spark_submit)
    run = install("shop_and_lake", DAG).test()
    return {"dag_id": "shop.lake", "run_id": run.run_id, "task_id": "compact"}


def test_the_report_shows_the_outcome_of_each_table(viewer: TestClient, task: dict[str, str]) -> None:
    page = viewer.get("report", params=task)
    assert page.status_code == 200 and "Report of compact" in page.text
    part, tries = re.findall(r'data-part="([^"]*)"', page.text)
    assert tries.startswith("parts/tries?")
    text = viewer.get(part.replace("&amp;", "&")).text
    shown = words(text)
    assert "2 tables 1 done 1 failed" in shown and "7 core-seconds" in shown and "Spark application local-1" in shown
    assert "data files 12 → 3" in shown and "rows=4000" in shown and "all rows, 2 of 2 columns" in shown
    assert "9007199254740993 → 9007199254740995" in shown
    assert "compact_data_files failed (bad input) for 1 of 2 tables" in shown
    assert "Fix the problem above, then clear the task" in shown
    assert "<script" not in text and "&lt;script&gt;" in text and CATALOG_SECRET not in text
    assert 'href="table?lake=lake&amp;name=shop.orders"' in text
    assert re.search(r'href="\.\./dags/shop\.lake/runs/[^"/]*/tasks/compact" data-airflow', text)
    priced = Lake("lake", "lake", LakeConfig(prices=Prices(core_hour=500, currency="EUR")))
    assert "of CPU time" not in shown
    assert "1.00 EUR of CPU time" in words(
        render("report", **report_of([priced], Task(task["dag_id"], task["run_id"], task["task_id"])))
    )


def test_running_lost_and_missing_jobs_are_distinguished(
    viewer: TestClient, task: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(**other: str) -> str:
        return words(viewer.get("parts/report", params={**task, **other}).text)

    def change(state: str, **job_run: Any) -> None:
        with create_session() as session:
            session.execute(update(TaskInstance).filter_by(**task).values(state=state))
            session.execute(update(XComModel).filter_by(**task, key="lakecdc_job_run").values(value=job_run))
            session.execute(delete(XComModel).filter_by(**task, key="report"))

    begun: dict[str, Any] = {
        "job": "compact_data_files",
        "catalog_conn_id": "away",
        "tables": ["shop.orders"],
        "is_dry_run": True,
    }
    begun["started_at"] = "2026-01-01T00:00:00.000+00:00"
    change("failed", **begun)
    assert "The task ended before its job sent a report" in part()
    monkeypatch.setattr(Lake, "dags", property(lambda _: ["shop.lake"]))
    assert "compact of shop.lake" not in viewer.get("parts/running").text
    change("running", **begun)
    assert "compact of shop.lake for" in words(viewer.get("parts/running", params={"lake": "lake"}).text)
    # an answer is given again for a while; to ask for the lake by its name is another question
    shown = part(lake="lake")
    assert "and is working on shop.orders" in shown and "a dry run" in shown
    assert re.search(r"shop\.orders: 1 of 2 file groups, 5 minutes left \d+ s ago", shown)
    assert "has no job report" in part(task_id="other") and "has no job report" in part(map_index="0")


def test_the_reports_of_earlier_tries_are_in_the_audit(
    viewer: TestClient, task: dict[str, str], catalog: CatalogConnection
) -> None:
    steps = (
        TableReport("shop.orders", "done", job="compact_data_files", metrics=METRICS),
        TableReport("shop.orders", "failed", job="expire_snapshots", reason="it broke"),
    )
    report = JobReport("govern", BEGUN, ENDED, "local-1", steps)
    run = Run(task["dag_id"], task["run_id"], task["task_id"], 1)
    first = Application("1", run, "govern", ("shop.orders",), BEGUN, report=report)
    second = replace(first, id="2", run=replace(run, try_number=2), report=replace(report, tables=steps[:1]))
    # another map index is another task
    for each in (first, second, replace(first, id="m", run=replace(run, map_index=3))):
        assert record_application(catalog, each)
    tries = viewer.get("parts/tries", params=task).text
    assert re.search("All tries .* 2 .* ago done local-1 1 .* ago done failed local-1 Tries", words(tries))
    addresses = re.findall(r'href="(report[^"]*)"', tries)
    history = viewer.get("parts/history", params={"name": "shop.orders"}).text
    assert len(addresses) == 2 and set(addresses) < {*re.findall(r'href="(report[^"]*)"', history)}
    of_first = addresses[1].replace("&amp;", "&")
    assert f'data-part="parts/{addresses[1]}"' in viewer.get(of_first).text
    shown = words(viewer.get(f"parts/{of_first}").text)
    assert "try 1 from lakecdc.audit" in shown and "1 table 1 done 1 failed 1 min" in shown
    assert "shop.orders compact_data_files done" in shown and "data files 12 → 3" in shown and "rows=4000" in shown
    assert "shop.orders expire_snapshots failed It broke." in shown and "Spark application local-1" in shown
    unknown = viewer.get("parts/report", params={**task, "try_number": "7"})
    assert "has no rows of this try" in unknown.text


def test_the_report_of_a_forbidden_dag_is_hidden(viewer: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # Airflow's simple auth manager has no rights by DAG
    def is_authorized(*, details: Any = None, **_: Any) -> bool:
        return details is None or details.id != "secret"

    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", is_authorized)
    ids = {"run_id": "r", "task_id": "t"}
    for address in ("report", "parts/report"):
        assert viewer.get(address, params={"dag_id": "secret", **ids}).status_code == 403
        assert viewer.get(address, params={"dag_id": "other", **ids}).status_code == 200
