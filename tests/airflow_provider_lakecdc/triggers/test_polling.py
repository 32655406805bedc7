"""The trigger behind the deferrable sensor."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import Any

import pytest

from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from tests.airflow_provider_lakecdc.tables import FedTable

SENSOR = "airflow_provider_lakecdc.sensors.watermark:IcebergWatermarkSensor"
FIVE, SIX = "2026-01-01T05:00:00+00:00", "2026-01-01T06:00:00+00:00"


def trigger(**arguments: Any) -> PollingTrigger:
    defaults = {
        "sensor": SENSOR,
        "table": "shop.orders",
        "catalog_conn_id": "lake",
        "moment": FIVE,
        "poll_interval": 0.01,
    }
    return PollingTrigger(**{**defaults, **arguments})


async def first_event(waiting: PollingTrigger) -> dict[str, Any]:
    async for event in waiting.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("The trigger ended without an event.")


def test_it_is_rebuilt_from_json_and_contains_no_secret(lake: dict[str, str]) -> None:
    path, arguments = trigger().serialize()
    given = {"table": "shop.orders", "catalog_conn_id": "lake", "moment": FIVE, "poll_interval": 0.01}
    assert arguments == {**given, "sensor": SENSOR}
    module, name = path.rsplit(".", 1)
    rebuilt = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
    assert rebuilt.serialize() == (path, arguments)


def test_it_fires_at_once_if_the_moment_is_reached(lake: dict[str, str]) -> None:
    FedTable(lake).ingest(FIVE)
    assert asyncio.run(first_event(trigger())) == {"status": "reached", "result": FIVE}


def test_it_waits_without_blocking_the_loop(lake: dict[str, str]) -> None:
    orders = FedTable(lake)
    orders.ingest(FIVE)

    async def scenario() -> dict[str, Any]:
        waiting = asyncio.create_task(first_event(trigger(moment=SIX)))
        # it reaches its sleep between two polls while this coroutine yields the loop
        await asyncio.sleep(0.3)
        assert not waiting.done()
        orders.ingest(SIX)
        return await waiting

    assert asyncio.run(scenario())["result"] == SIX


@pytest.mark.parametrize("arguments", [{"catalog_conn_id": "nowhere"}, {"moment": "soon"}])
@pytest.mark.usefixtures("lake")
def test_an_error_ends_the_wait(arguments: dict[str, Any]) -> None:
    event = asyncio.run(first_event(trigger(**arguments)))
    assert event["status"] == "error"
    assert next(iter(arguments.values())) in event["message"]
