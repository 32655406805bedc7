"""Looks at the lake, in threads of the page's own: neither the event loop nor Airflow's threads wait for a catalog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from cachetools import LRUCache, TTLCache

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import open_table

T = TypeVar("T")
_MOST = 256


class Lookups:
    """Answers that are shared by all who ask for the same, while they are looked for and for a while afterwards.

    What fails is told to those who wait, and looked for anew by the next.

    :param threads: that look at the same time; others wait their turn.
    :param seconds: for which an answer is given again.
    :param patience: seconds after which nobody waits any longer; the look goes on for those who come back.
    """

    def __init__(self, threads: int, seconds: float, patience: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="lakecdc-page")
        self._patience = patience
        self._running: dict[Hashable, Future[Any]] = {}
        self._done: TTLCache[Hashable, Future[Any]] = TTLCache(_MOST, seconds)
        self._lock = Lock()

    async def get(self, key: Hashable, look: Callable[[], T]) -> T:
        """The answer to a question.

        :param key: of the question.
        :param look: finds the answer if nobody has done so lately.
        :raises TimeoutError: patience is at its end.
        """
        found = asyncio.wrap_future(self._future(key, look))
        return await asyncio.wait_for(asyncio.shield(found), self._patience)

    def _future(self, key: Hashable, look: Callable[[], T]) -> Future[T]:
        with self._lock:
            found = self._done.get(key) or self._running.get(key)
            if found is None:
                found = self._running[key] = self._threads.submit(self._look, key, look)
            return found

    def _look(self, key: Hashable, look: Callable[[], T]) -> T:
        try:
            answer = look()
        except BaseException:
            with self._lock:
                del self._running[key]
            raise
        with self._lock:
            self._done[key] = self._running.pop(key)
        return answer


class Heads:
    """What has been read of tables, kept for as long as nobody commits to them."""

    def __init__(self, most: int = _MOST) -> None:
        self._read: LRUCache[Hashable, Any] = LRUCache(most)
        self._lock = Lock()

    def read(self, catalog: CatalogConnection, table: str, key: Hashable, read: Callable[[], T]) -> T:
        """What is read of a table, or has been read of it as it is now.

        :param key: of what is read, beside the table.
        """
        with open_table(catalog, table) as found:
            # a location has no second content; a table that is not there may be made at any time
            head = (table, found.metadata_location if found else time.monotonic(), key)
        with self._lock:
            known: T | None = self._read.get(head)
        if known is None:
            known = read()
            with self._lock:
                self._read[head] = known
        return known
