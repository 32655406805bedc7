"""Reads of the lake in threads of the page, so that neither the event loop nor Airflow's threads wait for a catalog."""

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
    """A cache of answers that users share, while they are read and for some time afterwards.

    An error is raised for all that wait for the answer; the next request reads again.

    :param threads: maximum of parallel reads.
    :param seconds: lifetime of an answer.
    :param patience: seconds before a request stops waiting; the read continues for later requests.
    """

    def __init__(self, threads: int, seconds: float, patience: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="lakecdc-page")
        self._patience = patience
        self._running: dict[Hashable, Future[Any]] = {}
        self._done: TTLCache[Hashable, Future[Any]] = TTLCache(_MOST, seconds)
        self._lock = Lock()

    async def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the answer for a key, reading it if it is not cached.

        :raises TimeoutError: the read takes too long.
        """
        answer = asyncio.wrap_future(self._future(key, read))
        return await asyncio.wait_for(asyncio.shield(answer), self._patience)

    def _future(self, key: Hashable, read: Callable[[], T]) -> Future[T]:
        with self._lock:
            future = self._done.get(key) or self._running.get(key)
            if future is None:
                future = self._running[key] = self._threads.submit(self._run, key, read)
            return future

    def _run(self, key: Hashable, read: Callable[[], T]) -> T:
        try:
            answer = read()
        except BaseException:
            with self._lock:
                del self._running[key]
            raise
        with self._lock:
            self._done[key] = self._running.pop(key)
        return answer


class MetadataCache:
    """A cache of values read from tables, valid until the next commit to the table."""

    def __init__(self, most: int = _MOST) -> None:
        self._read: LRUCache[Hashable, Any] = LRUCache(most)
        self._lock = Lock()

    def read(self, catalog: CatalogConnection, table: str, key: Hashable, read: Callable[[], T]) -> T:
        """Return a cached value of a table, or read it; the key identifies the value within the table."""
        with open_table(catalog, table) as loaded:
            # the content of a metadata file never changes; a missing table may be created at any time
            head = (table, loaded.metadata_location if loaded else time.monotonic(), key)
        with self._lock:
            known: T | None = self._read.get(head)
        if known is None:
            known = read()
            with self._lock:
                self._read[head] = known
        return known
