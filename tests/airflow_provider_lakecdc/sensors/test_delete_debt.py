"""The sensor of delete debt, waiting in the worker and in the triggerer."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.sensors.delete_debt import DeleteDebtSensor
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from tests.airflow_provider_lakecdc.tables import FedTable

COUNTS = {"equality_delete_files": 2, "equality_deletes": 30, "position_delete_files": 0, "position_deletes": 0}


def sensor(**arguments: Any) -> DeleteDebtSensor:
    defaults = {"task_id": "debt", "tables": ["shop.orders"], "catalog_conn_id": "lake"}
    limits = {} if any(name.startswith("max_") for name in arguments) else {"max_equality_delete_files": 1}
    return DeleteDebtSensor(**{**defaults, **limits, "poke_interval": 0.01, "timeout": 0.05, **arguments})


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    fed = FedTable(lake)
    fed.ingest(None)
    fed.delete(10, 20)
    return fed


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("deferrable", [False, True])
class TestReached:
    """The condition holds already."""

    def test_debt_above_a_limit_passes(self, deferrable: bool, context: Any) -> None:
        assert sensor(deferrable=deferrable).execute(context) == {"shop.orders": COUNTS}

    def test_any_limit_suffices_and_templates_are_numbers(self, deferrable: bool, context: Any) -> None:
        limits = {"max_equality_delete_files": "1000", "max_equality_deletes": "29", "max_position_deletes": "None"}
        assert sensor(deferrable=deferrable, **limits).execute(context) == {"shop.orders": COUNTS}

    def test_debt_below_the_limits_passes(self, deferrable: bool, context: Any) -> None:
        counts = sensor(until="below", max_equality_delete_files=2, deferrable=deferrable).execute(context)
        assert counts == {"shop.orders": COUNTS}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"until": "beside"}, "beside"),
            ({"tables": ""}, "tables is empty"),
            ({"max_equality_deletes": None}, "At least one"),
            ({"max_equality_deletes": "many"}, "many"),
        ],
    )
    def test_invalid_arguments_fail_at_once(
        self, deferrable: bool, context: Any, arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(AirflowFailException, match=message):
            sensor(deferrable=deferrable, **arguments).execute(context)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("arguments", [{"max_equality_delete_files": 2}, {"until": "below"}, {"tables": "shop.items"}])
def test_unreached_limits_wait(context: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(deferrable=False, **arguments).execute(context)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(deferrable=True, **arguments).execute(context)
    assert isinstance(deferred.value.trigger, PollingTrigger)
    assert deferred.value.timeout is not None and deferred.value.timeout.total_seconds() == 0.05


async def first_event(waiting: PollingTrigger) -> dict[str, Any]:
    async for event in waiting.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("The trigger ended without an event.")


def deferred_trigger(context: Any, **arguments: Any) -> PollingTrigger:
    """Return the trigger of a waiting sensor, rebuilt from what Airflow stores of it."""
    with pytest.raises(TaskDeferred) as deferred:
        sensor(deferrable=True, **arguments).execute(context)
    path, stored = deferred.value.trigger.serialize()
    module, name = path.rsplit(".", 1)
    rebuilt: PollingTrigger = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(stored)))
    assert rebuilt.serialize() == (path, stored)
    return rebuilt


def test_the_trigger_waits_without_blocking_the_loop(context: Any, orders: FedTable) -> None:
    async def scenario() -> dict[str, Any]:
        waiting = asyncio.create_task(first_event(deferred_trigger(context, max_equality_delete_files=2)))
        # it reaches its sleep between two polls while this coroutine yields the loop
        await asyncio.sleep(0.3)
        assert not waiting.done()
        orders.delete(1)
        return await waiting

    event = asyncio.run(scenario())
    assert event["result"]["shop.orders"]["equality_delete_files"] == 3
    assert sensor().execute_complete(context, event) == event["result"]


def test_an_error_ends_the_wait(context: Any, orders: FedTable) -> None:
    trigger = deferred_trigger(context, until="below")
    trigger.catalog_conn_id = "nowhere"
    event = asyncio.run(first_event(trigger))
    assert event["status"] == "error" and "nowhere" in event["message"]
    with pytest.raises(LakecdcJobError, match="nowhere"):
        sensor().execute_complete(context, event)
