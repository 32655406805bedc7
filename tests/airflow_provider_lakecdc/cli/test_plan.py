"""The command ``plan``, over real tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_provider_lakecdc.cli.conftest import Ended, Lakecdc
from tests.airflow_provider_lakecdc.tables import FedTable

Plan = Callable[..., Ended]
ALL = {"shop.*": {"allow": ["*"]}}


@pytest.fixture
def plan(lakecdc: Lakecdc, tmp_path: Path, lake: dict[str, str]) -> Plan:
    """Return a function that plans a table with many small files, one with deletes, and one without work."""
    for name, files in {"orders": 12, "items": 1, "people": 1}.items():
        table = FedTable(lake, f"shop.{name}")
        for _ in range(files):
            table.ingest(None)
        if name == "people":
            table.delete(7, 3)

    def run(*arguments: str, **parts: Any) -> Ended:
        path = tmp_path / "lakecdc.json"
        path.write_text(json.dumps({"catalog_conn_id": "lake", "tables": ["shop.*"], "policy": ALL, **parts}))
        return lakecdc("plan", "--config", str(path), *arguments)

    return run


def chosen(ended: Ended) -> set[tuple[str, str]]:
    return {(each["table"].removeprefix("shop."), each["job"]) for each in ended.document["chosen"]}


def test_planned_work_is_listed_with_its_reasons(plan: Plan) -> None:
    ended = plan("--dag", "hourly")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    (compacted,) = [line for line in lines if "compact_data_files" in line]
    assert compacted.startswith("shop.orders ") and "12 files of" in compacted
    assert any(line.startswith("shop.people  rewrite_delete_files") for line in lines)
    assert lines[-1].startswith("lakecdc_hourly_governance would take ") and "; 1 tables need nothing." in lines[-1]
    document = plan("--dag", "hourly", "--json").document
    assert document["dag"] == "lakecdc_hourly_governance" and document["errors"] == {} and document["core_seconds"] > 0
    assert "cost" not in document and "CPU time" not in lines[-1]
    prices = {"core_hour": 36_000, "currency": "EUR"}
    priced = plan("--dag", "hourly", "--json", prices=prices).document
    assert priced["cost"] == pytest.approx(10 * priced["core_seconds"]) and priced["currency"] == "EUR"
    assert " EUR of CPU time; " in plan("--dag", "hourly", prices=prices).out.splitlines()[-1]
    # the night has different steps, and is the default
    night = plan("--json")
    assert night.document["dag"] == "lakecdc_nightly_governance"
    assert ("orders", "rewrite_manifests") in chosen(night) and ("items", "compact_data_files") not in chosen(night)


def test_a_missing_table_is_reported_in_one_line(plan: Plan) -> None:
    ended = plan("--dag", "nightly", tables=["shop.missing", "shop.items"])
    assert ended.code == 0 and [line for line in ended.out.splitlines() if "missing" in line] == [
        "shop.missing does not exist yet."
    ]


def test_tables_can_be_selected(plan: Plan) -> None:
    assert chosen(plan("--json", "--dag", "hourly", "shop.p*")) == {("people", "rewrite_delete_files")}
    ended = plan("crm.*")
    assert ended.code == 4 and ended.err.startswith("Error: Governance works on none of crm.*.")


def test_work_beyond_the_budget_is_reported(plan: Plan) -> None:
    everything = plan("--dag", "hourly", "--json")
    assert chosen(everything) == {("orders", "compact_data_files"), ("people", "rewrite_delete_files")}
    least = min(each["core_seconds"] for each in everything.document["chosen"])
    budgets = {"hourly_governance": (least + 0.01) / 60}
    bounded = plan("--dag", "hourly", "--json", budgets=budgets)
    assert len(chosen(bounded)) == 1 and "more than the whole budget" in bounded.document["skipped"][0]["reason"]
    assert "Skipped:" in plan("--dag", "hourly", budgets=budgets).out


def test_forbidden_work_is_not_planned(plan: Plan) -> None:
    assert chosen(plan("--json", policy={"shop.*": {"allow": ["rewrite_delete_files"]}})) == {
        ("people", "rewrite_delete_files")
    }


def test_an_unreadable_table_is_reported(plan: Plan, lake: dict[str, str]) -> None:
    FedTable(lake, "shop.broken").break_metadata()
    ended = plan("--dag", "hourly")
    assert ended.code == 1 and "shop.orders" in ended.out
    (error,) = [line for line in ended.out.splitlines() if line.startswith("shop.broken")]
    assert error.startswith("shop.broken cannot be assessed: ValidationError: ")


def test_a_configuration_is_required(lakecdc: Lakecdc) -> None:
    ended = lakecdc("plan")
    assert (ended.code, ended.out) == (4, "") and "No configuration is set" in ended.err
