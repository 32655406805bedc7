"""The packaged board and alert rules use metrics that the code sends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.observe.test_metrics import sent_metrics

SHIPPED = home.REPOSITORY / "airflow_provider_lakecdc" / "observe" / "monitoring"
PAGE = (home.REPOSITORY / "docs" / "guides" / "monitoring.md").read_text()
#: kinds by Prometheus' names, with Airflow's prefix
KINDS = {f"airflow_{name.replace('.', '_')}": kind for name, kind in sent_metrics()}
_LABELS = {"catalog", "table", "job", "op", "outcome"}
_SELECTORS = ("VectorSelector", "MatrixSelector")


def rules() -> list[dict[str, Any]]:
    """Return all alert rules."""
    groups = yaml.safe_load((SHIPPED / "prometheus-rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> dict[str, Any]:
    """Return the board as Grafana imports it."""
    loaded: dict[str, Any] = json.loads((SHIPPED / "grafana-board.json").read_text())
    return loaded


def expressions() -> Iterator[Any]:
    """Yield every PromQL expression with its place."""
    for rule in rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in board()["panels"]:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("expression", [*expressions()])
def test_expressions_use_sent_metrics_according_to_their_kind(expression: str) -> None:
    # Grafana replaces its variables before Prometheus parses
    parts: list[Any] = []
    promql.walk(promql.parse(expression.replace("$__rate_interval", "5m")), parts.append)
    grows = {each.vector_selector.name for each in parts if isinstance(each, promql.MatrixSelector)}
    selectors = [getattr(each, "vector_selector", each) for each in parts if type(each).__name__ in _SELECTORS]
    names = {each.name for each in selectors}
    assert names and names <= set(KINDS)
    # a counter is used by its growth, a gauge by its value
    assert {name for name in names if KINDS[name] == "counter"} == grows
    assert {KINDS[name] for name in names} <= {"counter", "gauge"}
    labels = {each.name for selector in selectors for each in selector.matchers.matchers}
    for each in parts:
        modifier = getattr(each, "modifier", None)
        labels |= set(getattr(getattr(modifier, "matching", modifier), "labels", ()))
    assert labels <= _LABELS


def test_the_board_has_only_members_known_to_grafana() -> None:
    read = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board())))
    assert [*_lost(board(), read)] == []


def _lost(given: Any, read: Any, place: str = "") -> Iterator[str]:
    """Yield the places that Grafana's types lose."""
    if isinstance(given, dict) and isinstance(read, dict):
        for name, value in given.items():
            yield from _lost(value, read.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, pair in enumerate(zip(given, read, strict=True)):
            yield from _lost(*pair, f"{place}[{number}]")
    elif given != read:
        yield place


def test_variables_of_the_board_are_labels_of_sent_metrics() -> None:
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


def test_every_alert_is_documented_with_a_remedy() -> None:
    assert re.findall(r"^\| `(Lakecdc\w+)` ", PAGE, re.MULTILINE) == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_a_promised_target_without_data_alerts_although_it_has_no_source_moment() -> None:
    texts = [rules()[0]["expr"], board()["panels"][0]["targets"][0]["expr"]]
    for text in (re.sub(r"{.*?}|max by \(catalog, table\) ", "", each) for each in texts):
        promised, moment = "(airflow_lakecdc_ingest_freshness_promised_seconds)", "(airflow_lakecdc_ingest_source_time)"
        assert f"or ({promised} unless on (catalog, table) {moment})" in text
