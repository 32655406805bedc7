"""A catalog with one table in memory."""

from __future__ import annotations

import pytest

from lakecdc.object_store.catalog import ObjectCatalog
from tests.lakecdc.object_store.memory import WAREHOUSE, Clock, Counting, MemoryStorage, without_waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return without_waiting(monkeypatch)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def catalog(storage: MemoryStorage, clock: Clock) -> ObjectCatalog:
    catalog = ObjectCatalog(storage, WAREHOUSE, Counting(), readable_paths=True)
    catalog.create_namespace(("shop",), {})
    catalog.create_table(("shop",), {"name": "orders"})
    return catalog
