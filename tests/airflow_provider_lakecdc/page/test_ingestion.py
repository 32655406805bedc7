"""Events, rows, throughput, lag and quarantined messages of ingestion, from the audit."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_provider_lakecdc.audit import Application, AuditRow, Run, record_application
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.page.history import Intake
from airflow_provider_lakecdc.page.ingestion import FedTable as IngestedTable
from lakecdc.contract.report import JobReport, TableReport
from tests.airflow_provider_lakecdc.page.test_parts import words
from tests.airflow_provider_lakecdc.tables import FedTable

NOW = datetime.now(UTC)


def ingested(events: int, **more: Any) -> dict[str, Any]:
    """Return the metrics of a table in a report of ingestion."""
    return {
        "events_c": events - 1,
        "events_u": 1,
        "rows_written": events - 2,
        "seconds": 2.0,
        "rows_per_second": 1.0,
        **more,
    }


def record_ingestion(catalog: CatalogConnection, id: str, hours: float, *tables: TableReport) -> None:
    """Record an application of ingestion that ended some hours ago."""
    ended = (NOW - timedelta(hours=hours)).isoformat()
    report = JobReport("ingest", ended, ended, tables=tables)
    run, names = Run("shop_ingest", f"run-{id}", "ingest", 1), tuple(each.table for each in tables)
    assert record_application(catalog, Application(id, run, "ingest", names, ended, report))


@pytest.fixture
def fed(lake: dict[str, str], catalog: CatalogConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make two tables that were fed twice; the second run failed for one."""
    for name, minutes in {"orders": 5, "items": 50}.items():
        FedTable(lake, f"shop.{name}").ingest((datetime.now(UTC) - timedelta(minutes=minutes)).isoformat())
    first = [TableReport(f"shop.{name}", "done", metrics=ingested(1000)) for name in ("orders", "items")]
    broken = TableReport(
        "shop.items",
        "failed",
        "the slot is gone. Load the table again",
        metrics={"seconds": 1.0, "rows_per_second": 0.0},
    )
    record_ingestion(catalog, "a", 30, *first)
    record_ingestion(catalog, "b", 3, *first)
    record_ingestion(catalog, "c", 0, TableReport("shop.orders", "done", metrics=ingested(500, quarantined=3)), broken)
    path = tmp_path / "page.json"
    targets = [{"table": f"shop.{name}", "key": ["id"]} for name in ("orders", "items")]
    path.write_text(json.dumps({"catalog_conn_id": "lake", "targets": targets, "freshness": "30m"}))
    monkeypatch.setenv("AIRFLOW__LAKECDC__PAGE_CONFIG_FILES", str(path))


@pytest.mark.usefixtures("fed")
class TestIngestion:
    def test_a_days_ingestion_lists_the_failed_table_first(self, viewer: TestClient) -> None:
        text = viewer.get("parts/ingestion").text
        page_text = words(text)
        assert "2 tables fed 2,500 events in 2,494 rows written 357 events a second" in page_text
        assert "3 messages quarantined 1 later than promised 1 failed in the last run" in page_text
        items, orders = page_text.index("shop.items"), page_text.index("shop.orders")
        assert items < orders and "failed The slot is gone. Load the table again. 1,000 998" in page_text[items:orders]
        # 1,000 events in 2 s, and another second that failed
        assert "333 50 min 0" in page_text[items:orders] and "done 1,500 1,496 375 5 min 3" in page_text[orders:]
        (values, _) = (json.loads(each.replace("&#34;", '"')) for each in re.findall(r'data-values="(.*?)"', text))
        assert len(values) == 24 and sum(values) == max(values) == 1000

    def test_a_table_has_its_events_by_hour(self, viewer: TestClient) -> None:
        text = viewer.get("parts/ingestion", params={"name": "shop.orders"}).text
        assert "1,500 events in 24 hours, at most 1,000 in one" in text and "2 runs, 0 failed" in words(text)
        assert words(viewer.get("parts/ingestion", params={"name": "shop.people"}).text) == ""

    def test_history_has_a_row_for_each_application_with_its_intake(self, viewer: TestClient) -> None:
        page_text = words(viewer.get("parts/history").text)
        assert "ingest 2 tables 1 done , 1 failed events 500 rows written 498 quarantined 3 3 s elapsed" in page_text
        assert "ingest 2 tables 2 done events 2,000 rows written 1,996 4 s elapsed" in page_text


def test_an_application_of_many_tables_shows_what_failed_and_links_to_its_report(
    viewer: TestClient, catalog: CatalogConnection
) -> None:
    tables = [TableReport(f"shop.t{number}", "failed" if number > 50 else "done", "why") for number in range(60)]
    record_ingestion(catalog, "a", 0, *tables)
    text = viewer.get("parts/history").text
    assert re.search(r'<a href="report[^>]*>60 tables</a>', text) and "data-open" not in text
    shown = re.findall(r"<tr class=\"opened\">.*?name=(shop.t\d+)", text, re.DOTALL)
    assert shown == [f"shop.t{number}" for number in range(51, 56)]


def test_events_are_summed_up_by_the_hour_in_which_runs_ended() -> None:
    begin = datetime(2026, 5, 3, 20, tzinfo=UTC)
    rows = [
        AuditRow(
            "a",
            "a",
            "ingest",
            "shop.orders",
            begin,
            begin + timedelta(hours=hours),
            "done",
            False,
            "d",
            "r",
            "t",
            1,
            metrics=ingested(events),
        )
        for hours, events in ((23.5, 7), (21.01, 5), (20.99, 3), (0, 2))
    ]
    fed = IngestedTable.of("shop.orders", rows, begin)
    assert fed.events_by_hour == [2, *[0] * 19, 3, 5, 0, 7]
    assert (fed.hours[0], fed.hours[4], fed.hours[-1]) == ("20:00", "00:00", "19:00")


@pytest.mark.usefixtures("lake")
def test_without_ingestion_the_part_is_empty(viewer: TestClient) -> None:
    assert "No run of ingestion in the last 24 hours is recorded" in viewer.get("parts/ingestion").text


def test_metrics_of_other_jobs_are_not_ingestion() -> None:
    assert Intake.of({"events_restored": 5, "rows_written": 3, "seconds": 1.0}) == Intake()


class TestOverview:
    @pytest.mark.usefixtures("fed")
    def test_tonights_cost_is_that_of_the_plan(self, viewer: TestClient) -> None:
        assert re.search(
            r"Tonight .*\d+ core-seconds? predicted for \d+ jobs?", words(viewer.get("parts/tonight").text)
        )
        assert "No job is running." in viewer.get("parts/running").text

    @pytest.mark.usefixtures("lake")
    def test_without_a_configuration_no_cost_is_shown(self, viewer: TestClient) -> None:
        assert "A plan needs a configuration" in viewer.get("parts/tonight").text
        assert "Unknown without a configuration" in viewer.get("parts/running").text
