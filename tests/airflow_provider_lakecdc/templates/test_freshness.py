"""Freshness promised for the whole configuration, a namespace and a target."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.definitions.deadline import DeadlineReference
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.templates import hourly_governance_dag, ingest_dag, parse_config
from lakecdc.contract.errors import SpecError

CONFIG: dict[str, Any] = {
    "source": {"type": "postgres", "slot": "s"},
    "source_conn_id": "shop_db",
    "freshness": "1h",
    "policy": {"shop.*": {"freshness": "30m"}},
    "targets": [
        {"table": "crm.people"},
        {"table": "shop.orders"},
        {"table": "shop.items", "freshness": "5m"},
        {"table": "shop.archive", "freshness": None},
        {"table": "log.{table}", "source_tables": ["x"]},
    ],
}
ALERTS = {"missed_freshness": True, "notifier": "a.Notifier", "arguments": {"to": {"env": "MAIL"}}}


def test_the_most_specific_promise_counts() -> None:
    promises = {"crm.people": "1h", "shop.orders": "30m", "shop.items": "5m", "shop.archive": None, "log.*": "1h"}
    assert parse_config(CONFIG).promises == promises
    ingest = ingest_dag(parse_config(CONFIG)).get_task("ingest")
    assert isinstance(ingest, MappedOperator)
    given = {target["table"]: target.get("freshness") for target in ingest.partial_kwargs["targets"]}
    named = {"log.{table}" if name == "log.*" else name: promise for name, promise in promises.items()}
    assert given == named
    assess = hourly_governance_dag(parse_config(CONFIG)).get_task("assess")
    assert isinstance(assess, AssessTablesOperator) and assess.freshness == promises


@pytest.mark.parametrize(
    "changes",
    [
        {"freshness": "soon"},
        {"policy": {"*": {"freshness": "30"}}},
        {"targets": [{"table": "shop.orders", "freshness": "0m"}]},
    ],
)
def test_an_invalid_duration_is_an_import_error_of_every_dag(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="freshness.* is .*, which is not a duration"):
        parse_config({**CONFIG, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"freshness": None, "policy": {}, "targets": [{"table": "a.b"}], "alerts": ALERTS},
            "no target has a freshness",
        ),
        # an alert for these targets could never fire
        ({"tables": ["shop.*"], "alerts": ALERTS}, "crm.people: .* does not read this target"),
        ({"tables": ["shop.*", "crm.*", "log.a"], "alerts": ALERTS}, r"log\.\*: .* does not read this target"),
        ({"policy": {"log.a": {"freshness": "5m"}}}, "freshness for some tables of a target that feeds many"),
    ],
)
def test_alerts_and_policies_require_a_target_with_the_promise(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_config({**CONFIG, **changes})


def test_a_run_longer_than_the_shortest_freshness_is_reported() -> None:
    assert ingest_dag(parse_config(CONFIG)).deadline is None
    dag = ingest_dag(parse_config({**CONFIG, "alerts": ALERTS}))
    (deadline,) = dag.deadline if isinstance(dag.deadline, list) else [dag.deadline]
    assert deadline is not None
    assert (deadline.reference, deadline.interval) == (DeadlineReference.DAGRUN_QUEUED_AT, timedelta(minutes=5))
    assert deadline.callback.path == "airflow_provider_lakecdc.governance.alerts.alert_missed_deadline"
    assert deadline.callback.kwargs == {
        "promised": "5m",
        "notifier": "a.Notifier",
        "arguments": {"to": {"env": "MAIL"}},
    }
    assert parse_config({**CONFIG, "tables": ["*", "!shop.archive"], "alerts": ALERTS}).promises["log.*"] == "1h"
    # Airflow stores it with the DAG
    assert "alert_missed_deadline" in str(DagSerialization.to_dict(dag))
