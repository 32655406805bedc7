"""The sensor of scores, waiting in the worker and in the triggerer."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_provider_lakecdc.lake.assess_table import health_of
from airflow_provider_lakecdc.sensors.table_health import TableHealthSensor
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from tests.airflow_provider_lakecdc.tables import FedTable


def sensor(**arguments: Any) -> TableHealthSensor:
    defaults = {"task_id": "health", "tables": ["shop.orders"], "catalog_conn_id": "lake"}
    return TableHealthSensor(**{**defaults, "poke_interval": 0.01, "timeout": 0.05, **arguments})


@pytest.fixture
def score(lake: dict[str, str]) -> float:
    """Return the score of a table with many deletes."""
    fed = FedTable(lake)
    fed.ingest(None)
    fed.delete(*[10] * 20)
    health = health_of(fed.table)
    assert health is not None and 1 < health.score < 80
    return round(health.score, 1)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(("until", "limit"), [("below", 80.0), ("below", "80"), ("above", 1)])
def test_a_reached_score_passes(score: float, deferrable: bool, context: Any, until: str, limit: Any) -> None:
    assert sensor(until=until, score=limit, deferrable=deferrable).execute(context) == {"shop.orders": score}


@pytest.mark.usefixtures("score")
@pytest.mark.parametrize(
    "arguments",
    [{"score": 1}, {"until": "above"}, {"tables": "shop.items"}, {"until": "above", "score": 1, "branch": "b"}],
)
def test_an_unreached_score_waits(context: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(deferrable=False, **arguments).execute(context)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(deferrable=True, **arguments).execute(context)
    assert isinstance(deferred.value.trigger, PollingTrigger)


def test_the_trigger_resumes_the_sensor(score: float, context: Any) -> None:
    path, arguments = sensor(deferrable=True).trigger().serialize()
    module, _, name = path.rpartition(".")
    waiting = getattr(importlib.import_module(module), name)(**arguments)

    async def first() -> Any:
        async for event in waiting.run():
            return event.payload

    assert sensor(deferrable=True).execute_complete(context, asyncio.run(first())) == {"shop.orders": score}


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"until": "beside"}, "beside"),
        ({"tables": ""}, "tables is empty"),
        ({"score": "low"}, "low"),
        ({"score": 101}, "101"),
    ],
)
def test_invalid_arguments_fail_at_once(context: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        sensor(**arguments).execute(context)
