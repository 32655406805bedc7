"""Consumers are registered, advance, never go back, and are stopped by a rollback."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.lake import consumers
from airflow_provider_lakecdc.operators.consumer import ConsumerOperator
from airflow_provider_lakecdc.sensors.snapshot import SnapshotSensor
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from lakecdc.contract.errors import InputError
from lakecdc.metadata.consumers import Consumer, read_consumers
from tests.airflow_provider_lakecdc.tables import FedTable

TABLE = "shop.orders"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def fed(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


@pytest.fixture
def catalog(fed: FedTable) -> CatalogConnection:
    return get_catalog("lake")


def registered(fed: FedTable) -> dict[str, Consumer]:
    return read_consumers(fed.catalog.load_table(TABLE).properties)


def test_a_consumer_advances_and_never_goes_back(catalog: CatalogConnection, fed: FedTable) -> None:
    first, second = fed.ingest(None), fed.ingest(None)
    consumer = consumers.register_consumer(catalog, TABLE, "mart", snapshot_id=first, limit=3600)
    assert registered(fed) == {"mart": consumer}
    assert consumers.unread(catalog, TABLE, "mart") == (first, second)
    assert consumers.move_consumer(catalog, TABLE, "mart", second).snapshot_id == second
    assert consumers.unread(catalog, TABLE, "mart") is None
    location = fed.catalog.load_table(TABLE).metadata_location
    assert consumers.move_consumer(catalog, TABLE, "mart", first).snapshot_id == second
    assert consumers.move_consumer(catalog, TABLE, "mart", second).snapshot_id == second
    assert fed.catalog.load_table(TABLE).metadata_location == location
    tag = fed.catalog.load_table(TABLE).metadata.refs["lakecdc-consumer-mart"]
    assert tag.snapshot_id == second and tag.max_ref_age_ms is not None and tag.max_ref_age_ms >= 3_600_000
    assert consumers.drop_consumer(catalog, TABLE, "mart") and not consumers.drop_consumer(catalog, TABLE, "mart")
    assert registered(fed) == {} and "lakecdc-consumer-mart" not in fed.catalog.load_table(TABLE).metadata.refs


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"snapshot": "x"}']
    + [
        '{"snapshot": "1", "limit": null, "moved_at": "2026-03-01T00:00:00Z"}',
        '{"snapshot": "1", "limit": 9, "moved_at": "2026-03-01T00:00:00"}',
        '{"snapshot": 1e999, "limit": 9, "moved_at": "2026-03-01T00:00:00Z"}',
    ],
)
def test_an_unreadable_consumer_property_is_never_silent(text: str) -> None:
    consumers_by_name = read_consumers(
        {"lakecdc.consumer.mart": text, "lakecdc.consumer.b": Consumer("b", 1, 9, NOW).encode()}
    )
    assert consumers_by_name["b"].is_readable and not consumers_by_name["mart"].is_readable
    assert not consumers_by_name["mart"].is_silent([(2, 0), (1, 0)], NOW)


def test_an_unreadable_consumer_property_is_dropped_and_registered_again(
    catalog: CatalogConnection, fed: FedTable
) -> None:
    first = fed.ingest(None)
    with fed.catalog.load_table(TABLE).transaction() as transaction:
        transaction.set_properties({"lakecdc.consumer.mart": "{}"})
    for act in (
        lambda: consumers.register_consumer(catalog, TABLE, "mart"),
        lambda: consumers.move_consumer(catalog, TABLE, "mart", first),
        lambda: consumers.unread(catalog, TABLE, "mart"),
    ):
        with pytest.raises(InputError, match=r"lakecdc\.consumer\.mart is not readable"):
            act()
    assert consumers.drop_consumer(catalog, TABLE, "mart")
    assert consumers.register_consumer(catalog, TABLE, "mart").snapshot_id == first


def test_registering_again_keeps_the_position(catalog: CatalogConnection, fed: FedTable) -> None:
    first = fed.ingest(None)
    consumers.register_consumer(catalog, TABLE, "mart")
    fed.ingest(None)
    again = consumers.register_consumer(catalog, TABLE, "mart", limit=60)
    assert (again.snapshot_id, again.limit) == (first, 60)


def test_an_expired_snapshot_cannot_be_registered_and_a_rollback_stops_a_consumer(
    catalog: CatalogConnection, fed: FedTable
) -> None:
    with pytest.raises(InputError, match="no snapshot yet"):
        consumers.register_consumer(catalog, TABLE, "mart")
    first, second = fed.ingest(None), fed.ingest(None)
    with pytest.raises(InputError, match="not in the table's history"):
        consumers.register_consumer(catalog, TABLE, "mart", snapshot_id=17)
    with pytest.raises(InputError, match="Consumer 'mart' does not exist"):
        consumers.move_consumer(catalog, TABLE, "mart", second)
    with pytest.raises(InputError, match="name"):
        consumers.register_consumer(catalog, TABLE, "a/b")
    consumers.register_consumer(catalog, TABLE, "mart")
    fed.table.refresh()
    fed.roll_back(first)
    fed.ingest(None)
    with pytest.raises(InputError, match="rollback"):
        consumers.unread(catalog, TABLE, "mart")


def test_a_move_succeeds_despite_a_concurrent_writer(
    catalog: CatalogConnection, fed: FedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = fed.ingest(None), fed.ingest(None)
    consumers.register_consumer(catalog, TABLE, "mart", snapshot_id=first)
    put, losses = consumers._put, [1]

    def overtaken(*given: Any) -> None:
        put(*given)
        if losses:
            losses.pop()
            fed.table.refresh()
            fed.ingest(None)

    monkeypatch.setattr(consumers, "_put", overtaken)
    assert consumers.move_consumer(catalog, TABLE, "mart", second).snapshot_id == second
    assert not losses and registered(fed)["mart"].snapshot_id == second


@pytest.mark.parametrize(
    ("snapshot", "moved", "silent"),
    [
        (3, timedelta(days=90), False),
        (2, timedelta(days=90), False),
        (1, timedelta(days=90), True),
        (1, timedelta(hours=1), False),
    ],
)
def test_only_a_consumer_with_old_unread_snapshots_is_silent(snapshot: int, moved: timedelta, silent: bool) -> None:
    at = [NOW - timedelta(days=30), NOW - timedelta(days=20), NOW - timedelta(hours=2)]
    ancestors = [(n, int(t.timestamp() * 1000)) for n, t in enumerate(at, 1)][::-1]
    consumer = Consumer("mart", snapshot, timedelta(days=7).total_seconds(), NOW - moved)
    assert consumer.is_silent(ancestors, NOW) is silent


def test_the_operator_registers_moves_and_drops(fed: FedTable) -> None:
    first = fed.ingest(None)
    second = fed.ingest(None)

    def run(**arguments: Any) -> str | None:
        return ConsumerOperator(task_id="t", table=TABLE, consumer="mart", catalog_conn_id="lake", **arguments).execute(
            {}
        )

    assert run(action="register", snapshot_id=str(first)) == str(first)
    assert run(snapshot_id=str(second)) == str(second)
    with pytest.raises(AirflowFailException, match="needs snapshot_id"):
        run()
    assert run(action="drop") is None
    with pytest.raises(AirflowFailException, match="does not exist"):
        run(snapshot_id=second)


async def first_event(trigger: PollingTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("The trigger ended without an event.")


@pytest.mark.parametrize("deferrable", [False, True])
def test_the_sensor_waits_for_unread_snapshots(fed: FedTable, context: Any, deferrable: bool) -> None:
    def sensor() -> SnapshotSensor:
        arguments: dict[str, Any] = {"table": TABLE, "consumer": "mart", "catalog_conn_id": "lake"}
        return SnapshotSensor(task_id="t", poke_interval=0.01, timeout=0.05, deferrable=deferrable, **arguments)

    first = fed.ingest(None)
    with pytest.raises(TaskDeferred if deferrable else AirflowSensorTimeout) as waiting:
        sensor().execute(context)
    assert registered(fed)["mart"].snapshot_id == first
    fed.table.refresh()
    second = fed.ingest(None)
    unread = {"read": str(first), "head": str(second)}
    assert sensor().execute(context) == unread
    if deferrable:
        assert isinstance(waiting.value, TaskDeferred)
        trigger = waiting.value.trigger
        assert isinstance(trigger, PollingTrigger)
        assert trigger.serialize()[1] == {
            **{"table": TABLE, "consumer": "mart"},
            "sensor": "airflow_provider_lakecdc.sensors.snapshot:SnapshotSensor",
            **{"catalog_conn_id": "lake", "poll_interval": 0.01},
        }
        event = asyncio.run(first_event(trigger))
        assert event == {"status": "reached", "result": unread}
        assert sensor().execute_complete(context, event) == unread
