"""The parts beside the list of tables: table, quarantine, history, plan."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from airflow_provider_lakecdc.audit import Application, Run, record_application, record_health
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake import assess_table
from airflow_provider_lakecdc.page.history import costs_of_lake
from airflow_provider_lakecdc.page.lakes import lakes
from airflow_provider_lakecdc.page.lookups import MetadataCache
from airflow_provider_lakecdc.page.rendering import render
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.report import JobReport, TableReport, now
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.tables import FedTable

NOW = datetime.now(UTC)


def words(text: str) -> str:
    """Return the visible text of a part."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def quarantined(lake: dict[str, str], *rows: tuple[str, str, datetime]) -> None:
    """Put messages into the quarantine of ``shop``: target, rule, moment."""
    targets, rules, moments = zip(*rows, strict=True)
    utc = pa.timestamp("us", "UTC")
    batch = pa.table({"target": targets, "rule": rules, "first_seen": pa.array(moments, utc), "raw_value": targets})
    FedTable.open(lake).create_table(f"shop.{names.QUARANTINE}", batch.schema).append(batch)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Write the configuration of a lake with a source and return it."""
    document: dict[str, Any] = {
        "catalog_conn_id": "lake",
        "source": {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"},
        "targets": [{"table": "shop.orders", "key": ["id"]}],
        "dag_id_prefix": "shop",
    }
    path = tmp_path / "lakecdc.json"
    path.write_text(json.dumps(document))
    monkeypatch.setenv("LAKECDC_CONFIG", str(path))
    return document


class TestOneTable:
    def test_files_deletes_and_snapshots_are_shown(
        self, viewer: TestClient, lake: dict[str, str], catalog: CatalogConnection
    ) -> None:
        table = FedTable(lake)
        for _ in range(3):
            table.ingest((NOW - timedelta(hours=3)).isoformat())
        head = table.delete(7, 3)
        table.table.manage_snapshots().create_tag(head, "<i>month</i>").commit()
        assert record_health(catalog, NOW - timedelta(hours=1), {"shop.orders": {"score": 90.0}})
        assert record_health(catalog, NOW, {"shop.orders": {"score": 70.0}})
        text = viewer.get("parts/table", params={"name": "shop.orders"}).text
        assert 'aria-label="3 tiny, 0 small, 0 fit, 0 large"' in text
        assert 'aria-label="2 equality-delete files, 0 position-delete files, 0 deletion vectors"' in text
        assert "10 keys and 0 positions" in text and 'aria-label="From 90 to 70"' in text
        assert "3 h behind the source" in words(text)
        # metadata does not reveal which rows the keys match
        assert "3 rows in data files, up to 3 of them deleted" in words(text)
        assert len(re.findall("<tr>", text)) == 5 and str(head) in text and "+0 −0 +2 −0" in words(text)
        assert "&lt;i&gt;month&lt;/i&gt;" in text and "<i>" not in text

    def test_a_table_of_too_many_files_shows_a_jobs_measurement(
        self, viewer: TestClient, lake: dict[str, str], catalog: CatalogConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("shop.orders", "shop.items"):
            FedTable(lake, name).ingest(None)
        monkeypatch.setattr(assess_table, "MOST_FILES_OF_A_WORKER", 0)
        none = words(viewer.get("parts/table", params={"name": "shop.items"}).text)
        assert "only jobs measure it; no job has done so recently" in none and "lowered by" not in none
        facts = {"score": 61.0, "lost": {"deletes": 39.0}, "data_files": 123_456, "data_bytes": 3 * 1024**3}
        assert record_health(catalog, NOW - timedelta(hours=2), {"shop.orders": facts})
        text = words(viewer.get("parts/table", params={"name": "shop.orders"}).text)
        assert "61 score 2 h ago" in text and "123,456 data files" in text and "lowered by deletes −39" in text
        assert "more than 100,000 live files" in text and "lately" not in text

    def test_a_table_without_a_snapshot_is_empty(self, viewer: TestClient, lake: dict[str, str]) -> None:
        FedTable(lake)
        text = words(viewer.get("parts/table", params={"name": "shop.orders"}).text)
        assert "nothing has been written yet" in text and "- behind the source" in text

    @pytest.mark.usefixtures("lake")
    def test_a_missing_table_is_reported(self, viewer: TestClient) -> None:
        assert viewer.get("table", params={"name": "shop.<b>"}).status_code == 200
        answer = viewer.get("parts/table", params={"name": "shop.<b>"})
        assert answer.status_code == 404 and "Table &#39;shop.&lt;b&gt;&#39; does not exist" in answer.text

    def test_a_new_commit_is_shown(self, viewer: TestClient, lake: dict[str, str]) -> None:
        from airflow_provider_lakecdc.page.lakes import Lake
        from airflow_provider_lakecdc.page.lookups import MetadataCache
        from airflow_provider_lakecdc.page.tables import table_of

        table, shown, heads = FedTable(lake), Lake("lake", "lake"), MetadataCache()
        table.ingest(None)
        before = table_of(shown, "shop.orders", heads)
        assert table_of(shown, "shop.orders", heads)["snapshots"] is before["snapshots"]
        table.ingest(None)
        assert table_of(shown, "shop.orders", heads)["status"]["health"]["data_files"] == 2


class TestQuarantine:
    @pytest.mark.usefixtures("config")
    def test_messages_are_grouped_by_rule_with_a_replay_for_each(
        self, viewer: TestClient, lake: dict[str, str]
    ) -> None:
        FedTable(lake)
        day, hours = NOW - timedelta(days=1), NOW - timedelta(hours=3)
        quarantined(
            lake,
            *[("shop.orders", "type", day), ("shop.orders", "<b>", hours), ("shop.orders", "type", hours)],
            ("shop.items", "type", NOW),
        )
        text = viewer.get("parts/quarantine", params={"name": "shop.orders"}).text
        assert "type 2 1 d ago 3 h ago Replay …" in words(text)
        assert 'data-replay="shop_replay_quarantine" data-table="shop.orders" data-rule="&lt;b&gt;"' in text
        none = viewer.get("parts/quarantine", params={"name": "shop.people"}).text
        assert "has no messages of this table" in none and "<button" not in none

    def test_without_a_source_nothing_can_be_replayed(self, viewer: TestClient, lake: dict[str, str]) -> None:
        FedTable(lake)
        quarantined(lake, ("shop.orders", "type", NOW))
        text = viewer.get("parts/quarantine", params={"name": "shop.orders"}).text
        assert "type" in text and "<button" not in text and "<dialog" not in text


class TestHistory:
    def test_applications_are_listed_with_numbers_before_and_after(
        self, viewer: TestClient, catalog: CatalogConnection
    ) -> None:
        metrics = {"data_files_before": 12, "data_files_after": 3, "manifests_before": 4, "manifests_after": 4}
        reports = (
            TableReport("shop.orders", "done", metrics={**metrics, "core_seconds": 7.2}),
            TableReport("shop.items", "failed", reason="<script>alert(1)</script>"),
        )
        report = JobReport("compact_data_files", now(), now(), "local-1", reports)
        run = Run("d", "manual__2026-01-01T00:00:00+00:00", "t", 1, triggering_user_name="ann")
        tables = tuple(each.table for each in reports)
        assert record_application(catalog, Application("1", run, report.job, tables, started_at=now(), report=report))
        text = viewer.get("parts/history").text
        assert "2 tables 1 done , 1 failed" in words(text) and "done data files 12 → 3 7" in words(text)
        assert "d by ann" in words(text) and "manifests" not in text
        # failures are visible although the application is closed
        assert re.findall(r'<tr class="opened"(.*?)>', text) == [' data-of="run-1" hidden', ""]
        assert 'href="../dags/d/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00" data-airflow' in text
        assert "<script" not in text and "&lt;script&gt;" in text
        of_one = viewer.get("parts/history", params={"name": "shop.orders", "alone": "true"}).text
        assert "done" in of_one and "failed" not in of_one

    def test_reasons_are_whole_sentences_and_rows_can_be_filtered(
        self, viewer: TestClient, catalog: CatalogConnection
    ) -> None:
        reason = f"the slot is {'very ' * 60}far behind. Drop it and load the table again"
        ran: list[tuple[str, str, Outcome, int]] = [
            ("ingest", "shop.orders", "failed", 0),
            ("ingest", "shop.items", "done", 2),
            ("expire", "shop.items", "done", 0),
        ]
        for number, (job, table, outcome, days) in enumerate(ran):
            ended = (NOW - timedelta(days=days)).isoformat()
            step = TableReport(table, outcome, reason=reason if outcome == "failed" else None)
            report = JobReport(job, ended, ended, tables=(step,))
            run = Run("d", "r", job, 1)
            assert record_application(catalog, Application(str(number), run, job, (table,), ended, report))
        text = words(viewer.get("parts/history").text)
        assert f"The slot is {'very ' * 60}far behind. Drop it and load the table again. -" in text

        def tables(**params: str) -> list[str]:
            answer = viewer.get("parts/history", params=params)
            assert f'data-part="parts/history?{urlencode(params)}"' in unescape(
                viewer.get("history", params=params).text
            )
            return re.findall(r'data-label="Table"><a [^>]*>(.*?)<', answer.text)

        assert tables(job="ingest") == ["shop.orders", "shop.items"] and tables(outcome="failed") == ["shop.orders"]
        assert tables(job="ingest", day=f"{NOW - timedelta(days=2):%Y-%m-%d}") == ["shop.items"]
        assert "No run matches." in viewer.get("parts/history", params={"outcome": "conflict"}).text
        wrong = viewer.get("parts/history", params={"day": "31.1."})
        assert wrong.status_code == 404 and "is not a date" in wrong.text

    @pytest.mark.usefixtures("lake")
    def test_an_empty_history_has_a_message(self, viewer: TestClient) -> None:
        assert "No runs are recorded for any table yet." in words(viewer.get("parts/history").text)


class TestPlan:
    def test_the_plan_equals_that_of_the_command_line(
        self, viewer: TestClient, lake: dict[str, str], config: dict[str, Any]
    ) -> None:
        table = FedTable(lake)
        for _ in range(12):
            table.ingest(None)
        text = words(viewer.get("parts/plan", params={"dag": "hourly"}).text)
        assert "1 job would run" in text and "shop_hourly_governance" in text
        assert re.search(r"shop.orders compact_data_files \d+ \d+ 12 files of", text)

    @pytest.mark.usefixtures("lake")
    def test_without_a_configuration_nothing_is_allowed(self, viewer: TestClient) -> None:
        assert viewer.get("plan").status_code == 200
        assert "A plan needs a configuration" in viewer.get("parts/plan").text
        assert viewer.get("plan", params={"dag": "yearly"}).status_code == 422


class TestCosts:
    def test_costs_of_runs_and_tables_are_shown_in_money(
        self, viewer: TestClient, config: dict[str, Any], catalog: CatalogConnection, tmp_path: Path
    ) -> None:
        assert "has no rows from the last 30 days" in viewer.get("parts/costs").text
        metrics = {"core_seconds": 3600.0, "data_files_before": 12, "data_files_after": 2}
        orders = TableReport("shop.orders", "done", metrics=metrics)
        report = JobReport("compact_data_files", now(), now(), tables=(orders,))
        run = Run("shop_nightly_governance", "<i>1</i>", "compact", 1)
        assert record_application(catalog, Application("a", run, report.job, ("shop.orders",), now(), report))
        (tmp_path / "lakecdc.json").write_text(
            json.dumps({**config, "prices": {"core_hour": 0.5, "currency": "<EUR>"}})
        )
        lake = lakes()[0]
        text = render("costs", lake=lake, **costs_of_lake(lake, MetadataCache()))
        shown = words(text)
        assert "3,600 core-seconds in 1 d" in shown and "15.22 &lt;EUR&gt; a month, extrapolated" in shown
        assert "shop_nightly_governance 1 3,600 0.50 &lt;EUR&gt; 0" in shown
        assert "<EUR>" not in text and "<i>1" not in text
        assert viewer.get("costs").status_code == 200
