"""The trigger of asset watchers: which changes of rows fire, and what is remembered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.triggers.row_change import RowChanges, RowChangeTrigger
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.tables import ROW, FedTable


class Store:
    """Values that Airflow stores with an asset."""

    def __init__(self, *, shared: bool = False) -> None:
        self.values: dict[str, Any] = {}
        self.shared = shared

    async def aget(self, key: str) -> Any:
        if self.shared:
            raise ValueError("Task has 2 concrete inlets and outlets")
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value


class Watcher:
    """A trigger as a triggerer runs it, with counted checks."""

    def __init__(self, store: Store | None) -> None:
        path, arguments = RowChangeTrigger(table="shop.orders", catalog_conn_id="lake", poll_interval=0.01).serialize()
        assert path == "airflow_provider_lakecdc.triggers.row_change.RowChangeTrigger"
        trigger = RowChangeTrigger(**arguments)
        trigger.asset_state_store = store  # type: ignore[assignment]
        check = trigger._check

        async def counted(seen: str | None) -> RowChanges | None:
            self.looks += 1
            return await check(seen)

        trigger._check = counted  # type: ignore[method-assign]
        self.looks = 0
        self._events = trigger.run()

    async def next_event(self) -> dict[str, Any] | None:
        """Return the next event, or None once two more checks have stored what they saw."""
        event, enough = asyncio.ensure_future(anext(self._events)), self.looks + 2
        async with asyncio.timeout(60):
            while not event.done() and self.looks < enough:
                await asyncio.sleep(0.001)
        if event.done():
            return event.result().payload
        event.cancel()
        return None

    async def event(self) -> dict[str, Any]:
        """Return the next event, however long it takes."""
        async with asyncio.timeout(60):
            return (await anext(self._events)).payload

    async def check_twice(self) -> None:
        """Let the trigger check twice."""
        enough = self.looks + 2
        async with asyncio.timeout(60):
            while self.looks < enough:
                await asyncio.sleep(0.001)


def job(table: FedTable, name: str) -> int:
    table.table.append(ROW, snapshot_properties={names.JOB: name})
    snapshot = table.table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def seen_after(store: Store) -> dict[str, Any] | None:
    """Return the first event of a newly started triggerer."""

    async def watch() -> dict[str, Any] | None:
        return await Watcher(store).next_event()

    return asyncio.run(watch())


def test_changes_fire_and_maintenance_does_not(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    first = orders.ingest(None)
    assert seen_after(store) is None, "the first check records the head as seen"
    second = orders.ingest(None)
    event = {"table": "shop.orders", "branch": "main", "is_descendant": True}
    assert seen_after(store) == {**event, "snapshot_id": str(second), "previous_snapshot_id": str(first)}
    # the event was not delivered when the triggerer ended, so it is repeated
    assert seen_after(store) == {**event, "snapshot_id": str(second), "previous_snapshot_id": str(first)}


@pytest.mark.parametrize("store", [None, "shared"])
def test_without_a_store_the_process_remembers(lake: dict[str, str], store: str | None) -> None:
    orders = FedTable(lake)
    orders.ingest(None)

    async def watch() -> dict[str, Any] | None:
        watcher = Watcher(Store(shared=True) if store else None)
        waiting = asyncio.create_task(watcher.event())
        await watcher.check_twice()
        job(orders, "compact_data_files")
        await watcher.check_twice()
        assert not waiting.done()
        changed = orders.ingest(None)
        fired = await waiting
        assert fired["snapshot_id"] == str(changed)
        # the change after the event was remembered
        return await watcher.next_event()

    assert asyncio.run(watch()) is None


@pytest.mark.parametrize(
    ("name", "fires"), [("sort_data_files", False), ("rebucket", False), ("expire_partitions", True), ("ingest", True)]
)
def test_jobs_that_preserve_rows_are_ignored(lake: dict[str, str], name: str, fires: bool) -> None:
    orders, store = FedTable(lake), Store()
    orders.ingest(None)
    assert seen_after(store) is None
    head = job(orders, name)
    fired = seen_after(store)
    assert (fired is not None) == fires
    if not fires:
        assert str(head) in store.values.values()


def test_rewrites_of_other_writers_are_ignored(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    orders.ingest(None)
    assert seen_after(store) is None
    head = orders.maintain()
    # like Iceberg's own procedure, which pyiceberg lacks
    metadata = Path(orders.table.metadata_location.removeprefix("file://"))
    content = json.loads(metadata.read_text())
    content["snapshots"][-1]["summary"]["operation"] = "replace"
    metadata.write_text(json.dumps(content))
    assert seen_after(store) is None
    assert str(head) in store.values.values()


def test_a_rollback_and_a_lost_snapshot_fire(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    first, second = orders.ingest(None), orders.ingest(None)
    assert seen_after(store) is None
    orders.roll_back(first)
    fired = seen_after(store)
    assert fired and (fired["snapshot_id"], fired["is_descendant"]) == (str(first), False)
    orders.roll_back(second)
    job(orders, "compact_data_files")
    orders.expire(second)
    assert seen_after(store)


def test_a_table_created_later_fires(lake: dict[str, str]) -> None:
    store = Store()
    assert seen_after(store) is None
    created = FedTable(lake).ingest(None)
    fired = seen_after(store)
    assert fired and (fired["snapshot_id"], fired["previous_snapshot_id"]) == (str(created), None)


def test_an_unresponsive_catalog_is_queried_again(lake: dict[str, str]) -> None:
    orders, store = FedTable(lake), Store()
    orders.ingest(None)
    assert seen_after(store) is None
    changed = orders.ingest(None)
    good = Path(orders.table.metadata_location.removeprefix("file://"))
    text = good.read_text()
    orders.break_metadata()

    async def watch() -> dict[str, Any]:
        watcher = Watcher(store)
        waiting = asyncio.create_task(watcher.event())
        await watcher.check_twice()
        assert not waiting.done()
        good.write_text(text)
        return await waiting

    assert asyncio.run(watch())["snapshot_id"] == str(changed)
