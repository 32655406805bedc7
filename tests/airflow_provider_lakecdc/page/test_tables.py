"""The list of real tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_provider_lakecdc.audit import record_health
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.page import tables
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from airflow_provider_lakecdc.page.tables import tables_of, trends
from tests.airflow_provider_lakecdc.tables import FedTable

NOW = datetime.now(UTC)


def health(score: float, **lost: float) -> dict[str, Any]:
    """Return a measurement like those of ``assess``."""
    return {
        "score": score,
        "lost": lost,
        "data_files": 12,
        "files_needed": 3,
        "equality_delete_files": 2,
        "position_delete_files": 1,
        "deletion_vectors": 1,
        "source_lag_seconds": 300.0,
        "written_at": (NOW - timedelta(hours=2)).isoformat(),
    }


def cells(text: str, table: str) -> list[str]:
    """Return the cells of a table's row; ages of some seconds become "now"."""
    (row,) = re.findall(rf'<tr data-name="{re.escape(table)}">(.*?)</tr>', text, re.DOTALL)
    texts = re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.DOTALL)
    cell_texts = [" ".join(re.sub(r"<.*?>", "", each).split()) for each in texts]
    return ["now" if re.fullmatch(r"\d+ s", each) else each for each in cell_texts]


def test_the_worst_table_is_first_with_the_reasons(
    viewer: TestClient, lake: dict[str, str], catalog: CatalogConnection
) -> None:
    for name in ("orders", "items", "people"):
        # lag and last write are current, not those of the measurement
        FedTable(lake, f"shop.{name}").ingest((datetime.now(UTC) - timedelta(minutes=7)).isoformat())
    first = {"shop.orders": health(90.0), "shop.items": health(97.0), "shop.gone": health(1.0)}
    assert record_health(catalog, NOW - timedelta(days=1), first)
    assert record_health(catalog, NOW, {"shop.orders": health(42.0, deletes=40.2, small_files=17.6, manifests=0.2)})
    text = viewer.get("parts/tables").text
    assert re.findall(r'data-name="(.*?)"', text) == ["shop.orders", "shop.items", "shop.people"]
    lost = "deletes −40 small files −18"
    assert cells(text, "shop.orders")[:-1] == ["shop.orders", "42", "", lost, "12 / 3", "4", "7 min", "now"]
    assert "Deletes: −40 points. Run rewrite_delete_files." in text and "1 good, 0 below 80, 1 below 50" in text
    # a single measurement is not a line
    assert text.count("measured once") == 1 == text.count('data-chart="spark"')
    assert 'data-values="[90.0, 42.0]"' in text and '"score bad"' in text
    assert cells(text, "shop.items")[2:] == ["measured once", "nothing", "12 / 3", "4", "7 min", "now", "1 d"]
    assert cells(text, "shop.people") == ["shop.people", "-", "", "not measured recently", "7 min", "now", "-"]


def test_a_long_list_shows_measurements_without_assessing_tables(
    viewer: TestClient,
    lake: dict[str, str],
    catalog: CatalogConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FedTable(lake).ingest(NOW.isoformat())
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"catalog_conn_id": "lake", "targets": [{"table": "shop.orders"}], "freshness": "30m"}))
    monkeypatch.setenv("AIRFLOW__LAKECDC__PAGE_CONFIG_FILES", str(path))
    measured = {**health(90.0), "source_time": (NOW - timedelta(hours=3)).isoformat()}
    assert record_health(catalog, NOW - timedelta(hours=1), {"shop.orders": measured})
    monkeypatch.setattr(tables, "_MOST_READ", 0)
    text = viewer.get("parts/tables").text
    assert cells(text, "shop.orders")[-3:] == ["5 min", "2 h", "1 h"]
    assert 'class="card bad">' not in text and "because not all tables were read" in text


def test_a_late_table_is_marked_in_the_list_and_on_its_page(
    viewer: TestClient, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, minutes in {"orders": 40, "items": 5}.items():
        FedTable(lake, f"shop.{name}").ingest((datetime.now(UTC) - timedelta(minutes=minutes)).isoformat())
    path = tmp_path / "page.json"
    targets = [{"table": f"shop.{name}", "key": ["id"]} for name in ("orders", "items")]
    path.write_text(json.dumps({"catalog_conn_id": "lake", "targets": targets, "freshness": "30m"}))
    monkeypatch.setenv("AIRFLOW__LAKECDC__PAGE_CONFIG_FILES", str(path))
    listed = viewer.get("parts/tables").text
    assert re.search(
        r'class="card bad">\s*<h2>Late tables</h2>.*?shop.orders.*?40 min behind its source; 30 min', listed, re.DOTALL
    )
    assert re.search(r'score bad" title="readers see its source .* missed by 1\d min.*">40 min<', listed)
    assert re.search(r'score good" title="as promised">5 min<', listed)
    late, timely = (viewer.get("parts/table", params={"name": f"shop.{name}"}).text for name in ("orders", "items"))
    assert "<b>40 min</b> behind the source" in late and "Readers see its source as of" in late
    assert "<dt>Promised freshness</dt><dd>30 min</dd>" in timely and "Readers see" not in timely


@pytest.mark.usefixtures("lake")
def test_a_lake_without_tables_has_a_message(viewer: TestClient) -> None:
    assert "There are no tables yet." in viewer.get("parts/tables").text


def test_a_lake_without_measurements_has_a_message(viewer: TestClient, lake: dict[str, str]) -> None:
    FedTable(lake)
    text = viewer.get("parts/tables").text
    assert "No table was measured" in text and cells(text, "shop.orders")[0] == "shop.orders"


def test_table_names_are_escaped(viewer: TestClient, lake: dict[str, str]) -> None:
    FedTable(lake, "shop.<script>alert('1')</script>\"&x=")
    text = viewer.get("parts/tables").text
    assert "<script" not in text
    assert "table?lake=lake&amp;name=shop.%3Cscript%3Ealert%28%271%27%29%3C%2Fscript%3E%22%26x%3D" in text


def test_measurements_are_read_once_for_each_commit(
    lake: dict[str, str], catalog: CatalogConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    FedTable(lake)
    assert record_health(catalog, NOW - timedelta(hours=1), {"shop.orders": health(90.0)})
    shown, heads = Lake("lake", "lake"), MetadataCache()
    before = trends(shown, heads)
    assert trends(shown, heads) is before
    assert record_health(catalog, NOW, {"shop.orders": health(50.0)})
    (row,) = tables_of(shown, heads)["rows"]
    assert row["trend"] and [score for _, score in row["trend"].scores] == [90.0, 50.0]
    # measurements older than the list shows are not read
    assert record_health(catalog, NOW - timedelta(days=20), {"shop.orders": health(10.0)})
    assert len(trends(shown, heads)["shop.orders"].scores) == 2


def test_of_many_measurements_some_are_shown_including_first_and_last(
    lake: dict[str, str], catalog: CatalogConnection
) -> None:
    from airflow_provider_lakecdc.audit import health_trends

    for number in range(7):
        assert record_health(catalog, NOW - timedelta(minutes=7 - number), {"shop.orders": health(float(number))})
    trend = health_trends(catalog, NOW - timedelta(days=1), most=4)["shop.orders"]
    assert [score for _, score in trend.scores] == [0.0, 2.0, 4.0, 6.0]
    assert trend.latest.score == 6.0 and trend.scores[0][0] == NOW - timedelta(minutes=7)
