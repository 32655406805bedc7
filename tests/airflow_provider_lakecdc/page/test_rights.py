"""Visibility of tables: teams of Airflow's simple auth manager, whose DAGs govern tables of one catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.team import Team
from airflow.models.team import dag_bundle_team_association_table as ASSOCIATION
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import delete

from airflow_provider_lakecdc.audit import Application, Run, record_application
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from lakecdc.contract.report import JobReport, TableReport, now
from tests.airflow_provider_lakecdc.page.conftest import Browser
from tests.airflow_provider_lakecdc.page.test_parts import NOW, quarantined, words
from tests.airflow_provider_lakecdc.tables import FedTable

TEAMS = ("sales", "people")
TABLES = ("shop.orders", "shop.staff", "shop.both", "shop.nobodys")


@pytest.fixture
def shared(
    lake: dict[str, str], catalog: CatalogConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Make two teams that govern tables of one catalog, one of them together, with a run of a job over all of them."""
    for table in TABLES:
        FedTable(lake, table)
    own = {"sales": "shop.orders", "people": "shop.st*"}
    files = {team: tmp_path / f"{team}.json" for team in TEAMS}
    for team, path in files.items():
        config = {"catalog_conn_id": "lake", "tables": [own[team], "shop.both"], "dag_id_prefix": team}
        path.write_text(json.dumps(config))
    monkeypatch.setenv("LAKECDC_CONFIG", str(files["sales"]))
    monkeypatch.setenv("AIRFLOW__LAKECDC__PAGE_CONFIG_FILES", str(files["people"]))
    names = (*TABLES, "shop.staff_lakecdc_deletes")
    report = JobReport(
        "compact_data_files", now(), now(), "local-1", tuple(TableReport(name, "done") for name in names)
    )
    run = Run("d", "r", "t", 1)
    assert record_application(catalog, Application("1", run, report.job, names, started_at=now(), report=report))
    with create_session() as session:
        for team in TEAMS:
            session.add_all([DagBundleModel(name=f"{team}-bundle"), Team(name=team)])
            session.flush()
            session.execute(ASSOCIATION.insert().values(dag_bundle_name=f"{team}-bundle", team_name=team))
            # the other DAGs are not deployed
            session.add(DagModel(dag_id=f"{team}_nightly_governance", bundle_name=f"{team}-bundle"))
    yield
    with create_session() as session:
        ids = [f"{team}_nightly_governance" for team in TEAMS]
        session.execute(delete(DagModel).where(DagModel.dag_id.in_(ids)))
        for team in TEAMS:
            session.delete(session.get_one(DagBundleModel, f"{team}-bundle"))
            session.delete(session.get_one(Team, team))


def lakes_of(client: TestClient) -> list[str]:
    """Return the choices in the head of the page; a single lake's name."""
    text = client.get("tables").text
    return re.findall(r"<option(?: selected)?>(.*?)</option>", text) or re.findall(r'class="lake"[^>]*>(.*?)<', text)


@pytest.mark.usefixtures("shared")
def test_a_team_sees_its_own_tables_and_ungoverned_ones(browser: Browser, lake: dict[str, str]) -> None:
    quarantined(lake, ("shop.staff", "type", NOW))
    client = browser("VIEWER", "sales")
    assert lakes_of(client) == ["lake (sales)"]
    page_text = words(client.get("parts/tables").text)
    assert "shop.orders" in page_text and "shop.both" in page_text and "shop.staff" not in page_text
    history = words(client.get("parts/history").text)
    assert all(name in history for name in ("shop.orders", "shop.both", "shop.nobodys"))
    assert "shop.staff" not in history
    for part in ("table", "quarantine", "history"):
        assert client.get(f"parts/{part}", params={"name": "shop.orders"}).status_code == 200
        for name in ("shop.staff", "shop.staff_lakecdc_deletes"):
            answer = client.get(f"parts/{part}", params={"name": name})
            assert answer.status_code == 404 and "does not exist" in answer.text
    other = {"lake": "lake (people)"}
    page_text = words(client.get("parts/costs").text)
    assert "shop.orders" in page_text and "shop.staff" not in page_text
    for address in ("tables", "parts/tables", "parts/plan", "parts/history", "parts/costs"):
        assert client.get(address, params=other).status_code == 404
    # cached answers are not shared between teams
    page_text = words(browser("VIEWER", "people").get("parts/history").text)
    assert "shop.staff" in page_text and "shop.orders" not in page_text


@pytest.mark.usefixtures("shared")
def test_other_spellings_of_hidden_tables_are_hidden(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    load = SqlCatalog.load_table
    # like a catalog that compares names case-insensitively
    monkeypatch.setattr(SqlCatalog, "load_table", lambda catalog, name: load(catalog, str(name).lower()))
    client = browser("VIEWER", "sales")
    for name in ("SHOP.staff", "shop.Staff", "shop.staff_LAKECDC_DELETES", "SHOP.ORDERS"):
        answer = client.get("parts/table", params={"name": name})
        assert answer.status_code == 404 and "does not exist" in answer.text
    assert client.get("parts/table", params={"name": "shop.orders"}).status_code == 200


@pytest.mark.usefixtures("shared")
def test_quarantines_and_history_tables_of_hidden_configurations_are_hidden(
    browser: Browser, lake: dict[str, str], catalog: CatalogConnection, tmp_path: Path
) -> None:
    config = {
        "catalog_conn_id": "lake",
        "dag_id_prefix": "people",
        "tables": ["shop.st*"],
        "targets": [{"table": "crm.{table}", "mode": "history", "history_table": "past.{table}_past"}],
        "options": {"ingest": {"quarantine_table": "ops.{table}_broken"}},
    }
    (tmp_path / "people.json").write_text(json.dumps(config))
    hidden = ("crm.staff", "past.staff_past", "ops.staff_broken", "crm.lakecdc_quarantine", "crm.lakecdc_parked")
    for name in (*hidden, "ops.other"):
        catalog.load().create_namespace_if_not_exists(name.partition(".")[0])
        FedTable(lake, name)
    shown = {name: browser("VIEWER", "sales").get("parts/table", params={"name": name}).status_code for name in hidden}
    assert shown == dict.fromkeys(hidden, 404)
    assert browser("VIEWER", "sales").get("parts/table", params={"name": "ops.other"}).status_code == 200
    for name in hidden:
        assert browser("VIEWER", "people").get("parts/table", params={"name": name}).status_code == 200


@pytest.mark.usefixtures("shared")
def test_members_of_both_teams_and_admins_see_all_and_others_see_the_reason(browser: Browser) -> None:
    for who in (("VIEWER", *TEAMS), ("ADMIN",)):
        client = browser(*who)
        assert lakes_of(client) == ["lake (sales)", "lake (people)"]
        history = words(client.get("parts/history").text)
        assert all(name in history for name in TABLES)
    outsider = browser("VIEWER")
    assert outsider.get("tables").status_code == 200 and lakes_of(outsider) == []
    answer = outsider.get("parts/tables")
    assert answer.status_code == 404 and "You may not see any lake" in answer.text
    # a DAG that they may read has a report anyway
    task = {"dag_id": "d", "run_id": "r", "task_id": "t"}
    assert outsider.get("report", params=task).status_code == 200
    assert outsider.get("parts/report", params=task).status_code == 200
    assert words(outsider.get("parts/tries", params=task).text) == ""


@pytest.mark.usefixtures("shared")
def test_the_tries_of_a_task_do_not_reveal_hidden_tables(browser: Browser) -> None:
    client = browser("VIEWER", "sales")
    task = {"dag_id": "d", "run_id": "r", "task_id": "t", "lake": "lake (sales)"}
    assert "1" in words(client.get("parts/tries", params=task).text)
    page_text = words(client.get("parts/report", params={**task, "try_number": "1"}).text)
    assert "shop.orders" in page_text and "shop.staff" not in page_text
