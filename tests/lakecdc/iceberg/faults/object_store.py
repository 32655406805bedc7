"""An object-store catalog whose storage loses chosen requests or answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakecdc.object_store import open_catalog
from lakecdc.object_store.open_catalog import open_storage
from lakecdc.object_store.storage import Answer, Storage
from tests.lakecdc.iceberg.faults.strikes import Strikes

_COMMITS = re.compile(r"/metadata/v\d+\.metadata\.json$")


class _LossyStorage:
    """A storage that can lose requests to create a table version, or their answers."""

    def __init__(self, storage: Storage, strikes: Strikes) -> None:
        self._storage, self._strikes = storage, strikes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def __str__(self) -> str:
        return str(self._storage)

    def create(self, location: str, body: bytes) -> Answer:
        fault = self._strikes.next() if _COMMITS.search(location) else None
        answer = self._storage.create(location, body) if fault is None or fault.lost == "answer" else Answer.UNCLEAR
        return answer if fault is None else Answer.UNCLEAR


@contextmanager
def lossy_storage() -> Iterator[Strikes]:
    """Give catalogs that are opened meanwhile a lossy storage."""
    strikes = Strikes()

    def opened(*arguments: Any) -> Any:
        return _LossyStorage(open_storage(*arguments), strikes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_catalog, "open_storage", opened)
        yield strikes
