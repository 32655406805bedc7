"""This code works on the output of the last release: tables with side tables, audit and configuration."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from airflow_provider_lakecdc import templates
from airflow_provider_lakecdc.audit import health_history, history
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.templates.config import LakeConfig
from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc
from tests.lakes import open_catalog
from tests.upgrades.make_lake import CATALOG, FOLDER, event, own_folder, variables

LAST = max(Path(__file__).parent.glob("*.tar.xz"), key=lambda path: [int(each) for each in path.name.split(".")[:3]])


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LakeConfig]:
    """Unpack the release's lake at its place and return its configuration."""
    given = {"AIRFLOW__LAKECDC__AUDIT": "True", "AIRFLOW__LAKECDC__DOCUMENTS_URI": f"file://{tmp_path}/documents"}
    for name, value in {**variables(), **given}.items():
        monkeypatch.setenv(name, value)
    with own_folder():
        with tarfile.open(LAST) as packed:
            packed.extractall(FOLDER, filter="data")
        yield templates.load_config(str(FOLDER / "lakecdc.json"))


def rows(table: str, *columns: str) -> list[tuple[object, ...]]:
    """Return values of columns, ordered by the first."""
    loaded = open_catalog(CATALOG).load_table(table)
    scanned = loaded.scan(selected_fields=columns).to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in scanned)


def test_lake_of_the_last_release_is_fed_governed_and_shown(
    config: LakeConfig, lakecdc: Lakecdc, viewer: TestClient
) -> None:
    for kind in ("ingest", "replay_quarantine", "hourly_governance", "nightly_governance", "weekly_governance"):
        assert getattr(templates, f"{kind}_dag")(config).dag_id == f"lakecdc_{kind}"
    catalog = get_catalog("lake")
    recorded = history(catalog, limit=1000)
    assert len(recorded) >= 3 and health_history(catalog)

    # an update of a row deleted since is late, and has no effect
    late = event("orders", "u", 35, id=2, name="late", amount=2)
    new = [event("orders", "c", 50, id=13, name="new", amount=13), event("prices", "u", 51, id=3, price=0.5)]
    (FOLDER / "feed" / "2.jsonl").write_text("".join([late, *new, event("clicks", "c", 52, id=5, page="pay")]))
    fed = lakecdc("run", "ingest", "--json")
    assert fed.code == 0, fed.err
    assert {table: facts["outcome"] for table, facts in fed.document["tables"].items()} == dict.fromkeys(
        config.target_tables, "done"
    )
    governed = lakecdc("run", "rewrite_delete_files", "--json")
    assert governed.document["tables"]["shop.orders"]["outcome"] == "done", governed.err

    orders = [(1, "order 1", 100), *((key, f"order {key}", key) for key in range(3, 13)), (13, "new", 13)]
    assert rows("shop.orders", "id", "name", "amount") == orders
    assert rows("shop.prices", "id", "price") == [(1, 9.5), (3, 0.5), (4, 6.0)]
    assert rows("shop.clicks", "id", "page") == [(1, "home"), (2, "home"), (3, "home"), (4, "cart"), (5, "pay")]
    assert len(rows("shop.price_history", "id")) == 7 and len(rows("shop.lakecdc_quarantine", "rule")) == 1
    assert len(history(catalog, limit=1000)) == len(recorded) + 4
    shown = viewer.get("parts/tables").text + viewer.get("parts/history").text
    assert "shop.orders" in shown and "rewrite_delete_files" in shown and "lakecdc_ingest" in shown
