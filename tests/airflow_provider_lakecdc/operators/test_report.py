"""The results of a plan and of unreadable tables."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.governance.alerts import _paid, _undone
from airflow_provider_lakecdc.governance.assessment import Assessed, Assessment
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator
from airflow_provider_lakecdc.operators.report import ReportOperator, _cost
from lakecdc.metadata.alert_state import unpaid_debts
from lakecdc.metadata.cost import Prices
from lakecdc.metadata.plan import Action, Plan

FINE = Assessed("shop.fine", jobs=("compact_data_files",))
TABLES = (
    FINE,
    Assessed("shop.found", error="OSError: 503 Slow Down"),
    Assessed("shop.own", owner="sales", error="Its property lakecdc.policy.allow is 'all'"),
    Assessed("shop.own_lakecdc_deletes", "shop.own", error="the same"),
    Assessed("shop.new", is_absent=True),
)


def report(folder: Path, *tables: Assessed) -> dict[str, Any]:
    written = {"plan": json.dumps(Plan().facts()), "assessment": Assessment("2026-01-31", tables).to_json()}
    for name, text in written.items():
        (folder / name).write_text(text)
    uris: dict[str, Any] = {name: f"file://{folder}/{name}" for name in written}
    context: Any = {"ti": SimpleNamespace()}
    return ReportOperator(task_id="report", jobs=[], **uris).execute(context)


def test_unreadable_tables_fail_the_run_by_name(tmp_path: Path) -> None:
    with pytest.raises(JobBadInputError) as raised:
        report(tmp_path, *TABLES)
    first, *lines = str(raised.value).splitlines()
    assert first == "2 of 5 tables could not be assessed, and nothing was removed from them:"
    assert lines[0] == "  shop.found: OSError: 503 Slow Down" and lines[1].startswith("  shop.own: Its property")
    assert report(tmp_path, FINE)["outcomes"] == {}


def test_the_cost_of_a_run_is_the_measured_time_of_all_its_actions() -> None:
    done, idle = {"outcome": "done", "metrics": {"core_seconds": 1800.0}}, {"outcome": "nothing", "metrics": {}}
    results = [
        (Action("shop.fine", "compact_data_files", ""), facts) for facts in (done, done, idle, {"outcome": "failed"})
    ]
    assert _cost(results, Prices(core_hour=0.25, currency="EUR")) == {"cost": 0.25, "currency": "EUR"}
    assert _cost(results, None) == {}


def test_unreadable_tables_are_named_in_the_log_of_the_assessment(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    log = SimpleNamespace(info=lambda *_: None, warning=lambda text, *values: lines.append(text % values))
    monkeypatch.setattr(AssessTablesOperator, "log", log)
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
    AssessTablesOperator(task_id="assess")._report(context, Assessment("2026-01-31", TABLES))
    assert [line.split()[2].rstrip(",") for line in lines] == ["shop.found", "shop.own"] and "503 Slow Down" in lines[0]


def test_unreadable_tables_count_in_alerts_until_they_are_readable() -> None:
    unseen, seen = Assessment("2026-01-31", TABLES), Assessment("2026-01-31", (FINE, Assessed("shop.own")))
    undone, paid = _undone(Plan(), [], unseen), _paid([], unseen)
    news, runs = unpaid_debts(undone, paid, {"assess": {"shop.own": 1}}, 2, {"shop.own": "sales"})
    (line,) = news.began
    assert line.startswith("shop.own (sales): assess has left its work undone for 2 runs; Its property")
    news, runs = unpaid_debts(_undone(Plan(), [], seen), _paid([], seen), runs, 2, {})
    assert news.over == ("shop.own: assess has done its work again",) and runs == {"assess": {"shop.found": 1}}


def test_a_plan_is_json_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    action = Action("shop.fine", "compact_data_files", "why", benefit=float("inf"))
    (tmp_path / "assessment").write_text(Assessment("2026-01-31", (FINE,)).to_json())
    with pytest.raises(ValueError, match="JSON"):
        Assessment("2026-01-31", (FINE,), (action,)).to_json()
    uri = f"file://{tmp_path}"
    operator = PlanOperator(task_id="plan", assessment=f"{uri}/assessment", jobs=[], documents_uri=uri)
    monkeypatch.setattr(PlanOperator, "chosen", lambda *_: Plan((action,)))
    context: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="plan", map_index=-1, try_number=1)}
    with pytest.raises(ValueError, match="JSON"):
        operator.execute(context)
