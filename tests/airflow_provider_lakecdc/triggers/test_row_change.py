"""The trigger of asset watchers: what is a change of rows, and what is remembered of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from airflow_provider_lakecdc.triggers.row_change import RowChangeTrigger
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.tables import ROW, FedTable


class Store:
    """What Airflow keeps with an asset."""

    def __init__(self, *, shared: bool = False) -> None:
        self.kept: dict[str, Any] = {}
        self.shared = shared

    async def aget(self, key: str) -> Any:
        if self.shared:
            raise ValueError("Task has 2 concrete inlets and outlets")
        return self.kept.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = value


def trigger(store: Store | None) -> RowChangeTrigger:
    path, arguments = RowChangeTrigger(table="shop.orders", catalog_conn_id="lake", poll_interval=0.01).serialize()
    assert path == "airflow_provider_lakecdc.triggers.row_change.RowChangeTrigger"
    found = RowChangeTrigger(**arguments)
    found.asset_state_store = store  # type: ignore[assignment]
    return found


async def next_event(events: AsyncIterator[TriggerEvent], seconds: float = 0.3) -> dict[str, Any] | None:
    """The next event; None if there is none for a while, after which the stream has ended."""
    try:
        return (await asyncio.wait_for(anext(events), seconds)).payload
    except TimeoutError:
        return None


def job(table: FedTable, name: str) -> int:
    table.table.append(ROW, snapshot_properties={names.JOB: name})
    found = table.table.current_snapshot()
    assert found is not None
    return found.snapshot_id


def seen_after(store: Store) -> dict[str, Any] | None:
    """What a triggerer that starts now tells first."""
    return asyncio.run(next_event(trigger(store).run()))


def test_changes_fire_and_maintenance_does_not(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    first = orders.ingest(None)
    assert seen_after(store) is None, "the first look takes the head as seen"
    second = orders.ingest(None)
    event = {"table": "shop.orders", "branch": "main", "is_descendant": True}
    assert seen_after(store) == {**event, "snapshot_id": str(second), "previous_snapshot_id": str(first)}
    # the event was on its way when the triggerer ended, so that it comes once more
    assert seen_after(store) == {**event, "snapshot_id": str(second), "previous_snapshot_id": str(first)}


@pytest.mark.parametrize("store", [None, "shared"])
def test_without_a_store_the_process_remembers(lake: dict[str, str], store: str | None) -> None:
    orders = FedTable(lake)
    orders.ingest(None)

    async def watch() -> list[Any]:
        events = trigger(Store(shared=True) if store else None).run()
        waiting = asyncio.create_task(next_event(events, 10))
        await asyncio.sleep(0.3)
        job(orders, "compact_data_files")
        await asyncio.sleep(0.3)
        assert not waiting.done()
        changed = orders.ingest(None)
        found = await waiting
        assert found and found["snapshot_id"] == str(changed)
        # what came after the event was remembered
        return [await next_event(events)]

    assert asyncio.run(watch()) == [None]


@pytest.mark.parametrize(
    ("name", "fires"), [("sort_data_files", False), ("rebucket", False), ("expire_partitions", True), ("ingest", True)]
)
def test_jobs_that_keep_rows_are_passed_over(lake: dict[str, str], name: str, fires: bool) -> None:
    orders, store = FedTable(lake), Store()
    orders.ingest(None)
    assert seen_after(store) is None
    head = job(orders, name)
    found = seen_after(store)
    assert (found is not None) == fires
    if not fires:
        assert str(head) in store.kept.values()


def test_a_rollback_and_a_lost_snapshot_fire(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    first, second = orders.ingest(None), orders.ingest(None)
    assert seen_after(store) is None
    orders.roll_back(first)
    found = seen_after(store)
    assert found and (found["snapshot_id"], found["is_descendant"]) == (str(first), False)
    orders.roll_back(second)
    job(orders, "compact_data_files")
    orders.expire(second)
    assert seen_after(store)


def test_a_table_that_comes_later_fires(lake: dict[str, str]) -> None:
    store = Store()
    assert seen_after(store) is None
    created = FedTable(lake).ingest(None)
    found = seen_after(store)
    assert found and (found["snapshot_id"], found["previous_snapshot_id"]) == (str(created), None)


def test_a_catalog_that_does_not_answer_is_asked_again(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    orders.ingest(None)
    assert seen_after(store) is None
    changed = orders.ingest(None)
    good = Path(orders.table.metadata_location.removeprefix("file://"))
    text = good.read_text()
    orders.break_metadata()

    async def watch() -> dict[str, Any] | None:
        waiting = asyncio.create_task(next_event(trigger(store).run(), 10))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        good.write_text(text)
        return await waiting

    found = asyncio.run(watch())
    assert found and found["snapshot_id"] == str(changed)
