"""The command ``health``, over real tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.status import report_statuses
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc
from tests.airflow_provider_lakecdc.tables import FedTable

FIVE = "2026-01-01T05:00:00+00:00"
LONG = "shop.orders_of_customers_from_before_the_second_migration"


@pytest.fixture
def shop(lake: dict[str, str]) -> FedTable:
    """Make a healthy table, one with debt, and one without writes."""
    FedTable(lake, "shop.items").ingest(FIVE)
    orders = FedTable(lake)
    for _ in range(4):
        orders.ingest(FIVE)
    orders.delete(7, 3)
    FedTable(lake, "shop.empty")
    return orders


def config(folder: Path, monkeypatch: pytest.MonkeyPatch, **parts: Any) -> Path:
    path = folder / "lakecdc.json"
    path.write_text(json.dumps({"catalog_conn_id": "lake", **parts}))
    monkeypatch.setenv("LAKECDC_CONFIG", str(path))
    return path


@pytest.mark.usefixtures("shop")
def test_a_table_later_than_its_freshness_is_reported(
    lakecdc: Lakecdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [{"table": f"shop.{name}", "key": ["id"]} for name in ("orders", "empty")]
    config(tmp_path, monkeypatch, targets=[*targets, {"table": "shop.items", "freshness": "9999999d"}], freshness="1h")
    said = " ".join(lakecdc("health").out.split())
    assert (
        "shop.orders: readers see its source as of 2026-01-01 05:00:00 UTC, " in said
        and "shop.items: readers" not in said
    )
    assert "shop.empty: no source moment of its rows is known" in said
    shown = json.loads(lakecdc("health", "shop.items", "--json").out)["shop.items"]
    assert (shown["freshness_late_seconds"], shown["freshness_problem"]) == (0.0, None)


@pytest.mark.usefixtures("shop")
def test_the_worst_table_is_first_with_its_reason(lakecdc: Lakecdc) -> None:
    ended = lakecdc("health", "--catalog", "lake")
    assert (ended.code, ended.err) == (0, "")
    heading, _, orders, items, empty, *_ = ended.out.splitlines()
    (known,) = report_statuses(get_catalog("lake"), ["shop.orders"], health=True).values()
    lost = known["health"]["lost"]
    named = f"deletes {lost['deletes']:.0f}, small_files {lost['small_files']:.0f}"
    assert orders.split()[:2] == ["shop.orders", f"{known['health']['score']:.0f}"] and named in orders
    assert re.findall(r"\b\d+\b", orders)[-6:-1] == ["4", "1", "2", "0", "0"]
    assert items.startswith("shop.items") and " 100 " in items and empty.startswith("shop.empty")
    # numeric columns are right-aligned with their headings
    assert orders.index(" 4 ") + 2 == heading.index("files") + len("files")


def test_a_table_unreadable_by_its_readers_is_reported(shop: FedTable, lakecdc: Lakecdc) -> None:
    assert "set_readers" not in lakecdc("health", "--catalog", "lake").out
    with shop.table.transaction() as transaction:
        transaction.set_properties({names.READERS: "snowflake,trino"})
    said = " ".join(lakecdc("health", "--catalog", "lake").out.split())
    assert (
        "shop.orders: The table has format version 2, and Snowflake cannot read equality deletes. Run the job" in said
    )


@pytest.mark.usefixtures("shop")
def test_json_matches_the_metadata(lakecdc: Lakecdc) -> None:
    document = lakecdc("health", "shop.items", "shop.orders", "--catalog", "lake", "--json", "--partitions").document
    assert list(document) == ["shop.orders", "shop.items"]
    assert _then(document["shop.orders"]) == _known(partitions=True)
    assert document["shop.orders"]["last_write"]["source_time"] == FIVE


def test_an_unreadable_table_does_not_stop_the_others(lakecdc: Lakecdc, shop: FedTable, lake: dict[str, str]) -> None:
    FedTable(lake, "shop.broken").break_metadata()
    ended = lakecdc("health", "shop.*", "x.absent", "--catalog", "lake")
    assert ended.code == 1 and "shop.orders " in ended.out and "shop.items " in ended.out
    errors = [line for line in ended.out.splitlines() if "cannot be read" in line]
    assert len(errors) == 2 and "Invalid JSON" in "".join(errors) and "Traceback" not in ended.out + ended.err
    assert "x.absent cannot be read: The table does not exist." in errors
    document = lakecdc("health", "shop.*", "x.absent", "--catalog", "lake", "--json")
    assert document.code == 1 and list(document.document)[:2] == ["x.absent", "shop.broken"]


@pytest.mark.usefixtures("shop")
def test_it_covers_the_tables_of_the_configuration(
    lakecdc: Lakecdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
) -> None:
    path = config(tmp_path, monkeypatch, tables=["shop.*", "!shop.empty"])
    assert list(lakecdc("health", "--json").document) == ["shop.orders", "shop.items"]
    # its catalog also applies to named tables
    assert list(lakecdc("health", "shop.empty", "--json").document) == ["shop.empty"]
    config(tmp_path, monkeypatch, targets=[{"table": "shop.{table}", "key": ["id"]}])
    monkeypatch.delenv("LAKECDC_CONFIG")
    FedTable.open(lake).create_namespace("other")
    FedTable(lake, "other.table")
    assert len(lakecdc("health", "--json", "--config", str(path)).document) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "No table is given. Name tables,"),
        (("--catalog", "nowhere"), "Connection 'nowhere' for the Iceberg catalog does not exist. Create it,"),
        (("--config", "gone.json"), "Cannot read the configuration gone.json: No such file or directory."),
        (("--config", "a", "--catalog", "b"), "Both --config and --catalog are given."),
        (("--catalog", "lake", "crm.*"), "No table in catalog 'lake' matches crm.*."),
    ],
)
@pytest.mark.usefixtures("lake")
def test_bad_input_is_reported_in_one_line_with_a_remedy(
    lakecdc: Lakecdc, arguments: tuple[str, ...], said: str
) -> None:
    ended = lakecdc("health", *arguments)
    assert (ended.code, ended.out) == (4, "")
    assert ended.err.startswith(f"Error: {said}") and ended.err.count("\n") == 1


@pytest.mark.sqlite
def test_an_unreachable_catalog_is_reported_in_one_line(lakecdc: Lakecdc, shop: FedTable, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("no database")
    ended = lakecdc("health", "shop.*", "--catalog", "lake")
    assert ended.code == 1 and ended.err.startswith("Error: DatabaseError: ") and ended.err.count("\n") == 1
    assert "Traceback" in lakecdc("health", "shop.*", "--catalog", "lake", "--verbose").err


def test_a_terminal_of_80_columns_shows_everything(
    lakecdc: Lakecdc, shop: FedTable, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    FedTable(lake, LONG).ingest(FIVE)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lakecdc("health", "--catalog", "lake").out.splitlines()]
    rows = lines[: lines.index("")]
    assert max(map(len, rows)) <= 80 and "…" not in "".join(rows)
    assert LONG in "".join(line.split(" ")[0] for line in rows)
    # each reason is on a separate line
    assert [line for line in rows if "small_files" in line and "deletes" in line] == []


def test_airflow_has_the_command(installed: dict[str, str], shop: FedTable, lake: dict[str, str]) -> None:
    """Run Airflow's parser with a connection that only Airflow's database has."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        extra = json.dumps({**lake, "catalog_name": "lake"})
        session.add(Connection("stored", conn_type="iceberg", extra=extra))
    command = [sys.executable, "-m", "airflow", "lakecdc", "health", "shop.orders", "--catalog", "stored", "--json"]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, cwd=home.HOME)
    assert done.returncode == 0, done.stderr
    assert _then(json.loads(done.stdout)["shop.orders"]) == _known()


def test_registering_the_commands_imports_none_of_them() -> None:
    code = (
        "import sys, airflow.cli.cli_config; before = {*sys.modules};"
        "from airflow_provider_lakecdc.cli.definition import get_lakecdc_commands; get_lakecdc_commands();"
        "print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package = "airflow_provider_lakecdc"
    assert {*done.stdout.split()} - {package} == {f"{package}.cli", f"{package}.cli.definition"}


def _known(*, partitions: bool = False) -> dict[str, Any]:
    (status,) = report_statuses(get_catalog("lake"), ["shop.orders"], health=True, partitions=partitions).values()
    return _then(status)


def _then(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status without the members that change between measurements."""
    assert status["last_write"]["source_lag_seconds"] > 0
    return {**status, "last_write": {**status["last_write"], "source_lag_seconds": None}}
