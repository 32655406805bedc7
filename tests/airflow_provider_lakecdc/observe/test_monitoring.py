"""The board and the alert rules that the package ships use metrics that the code sends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.observe.test_metrics import sent_metrics

SHIPPED = home.REPOSITORY / "airflow_provider_lakecdc" / "observe" / "monitoring"
PAGE = (home.REPOSITORY / "docs" / "guides" / "monitoring.md").read_text()
#: kinds by the names that Prometheus has, with Airflow's prefix
KINDS = {f"airflow_{name.replace('.', '_')}": kind for name, kind in sent_metrics()}
_GROWS = re.compile(r"(?:increase|rate)\((\w+)")
_LABELS = {"catalog", "table", "job", "op", "outcome"}


def rules() -> list[dict[str, Any]]:
    """All alert rules."""
    groups = yaml.safe_load((SHIPPED / "prometheus-rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> dict[str, Any]:
    """The board as Grafana imports it."""
    found: dict[str, Any] = json.loads((SHIPPED / "grafana-board.json").read_text())
    return found


def expressions() -> Iterator[Any]:
    """Every expression of PromQL with where it stands."""
    for rule in rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in board()["panels"]:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("expression", [*expressions()])
def test_expressions_use_metrics_that_are_sent_as_their_kind(expression: str) -> None:
    names = set(re.findall(r"\bairflow_lakecdc_\w+", expression))
    assert names and names <= set(KINDS)
    # a counter says something by its growth, a gauge by its value
    assert {name for name in names if KINDS[name] == "counter"} == set(_GROWS.findall(expression))
    assert {KINDS[name] for name in names} <= {"counter", "gauge"}
    labels = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) + re.findall(r"(\w+)=", expression)
    assert {label.strip() for group in labels for label in group.split(",")} <= _LABELS


def test_variables_of_the_board_are_labels_of_metrics_that_are_sent() -> None:
    queries = [each["query"]["query"] for each in board()["templating"]["list"] if each["type"] == "query"]
    assert {name for query in queries for name in re.findall(r"airflow_lakecdc_\w+", query)} <= set(KINDS)
    assert [re.findall(r", (\w+)\)$", query) for query in queries] == [["catalog"], ["table"]]


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in board()["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23


def test_every_alert_is_explained_on_the_page_and_says_what_to_do() -> None:
    assert re.findall(r"^\| `(Lakecdc\w+)` ", PAGE, re.MULTILINE) == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_a_promised_target_that_was_never_fed_alerts_though_it_has_no_source_moment() -> None:
    texts = [rules()[0]["expr"], board()["panels"][0]["targets"][0]["expr"]]
    for text in (re.sub(r"{.*?}|max by \(catalog, table\) ", "", each) for each in texts):
        promised, moment = "(airflow_lakecdc_ingest_freshness_promised_seconds)", "(airflow_lakecdc_ingest_source_time)"
        assert f"or ({promised} unless on (catalog, table) {moment})" in text
