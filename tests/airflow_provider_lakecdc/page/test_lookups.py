"""Lookups are shared, cached for a while, and waited for with limited patience."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from airflow_provider_lakecdc.page.lookups import Lookups


def counted(answers: list[str], begin: threading.Event | None = None) -> Callable[[], str]:
    """Return a lookup that may wait for an event and counts its calls."""

    def lookup() -> str:
        if begin:
            assert begin.wait(30)
        answers.append("")
        return f"look {len(answers)}"

    return lookup


def test_concurrent_and_following_callers_share_a_lookup() -> None:
    looks: list[str] = []
    begin = threading.Event()

    async def fetch() -> list[str]:
        lookups = Lookups(threads=2, seconds=600, patience=30)
        tasks = [asyncio.create_task(lookups.get("tables", counted(looks, begin))) for _ in range(5)]
        await asyncio.sleep(0)
        begin.set()
        return [*await asyncio.gather(*tasks), await lookups.get("tables", counted(looks))]

    assert asyncio.run(fetch()) == ["look 1"] * 6


def test_an_old_answer_is_looked_up_again() -> None:
    looks: list[str] = []

    async def fetch() -> list[str]:
        lookups = Lookups(threads=1, seconds=0, patience=30)
        return [await lookups.get("tables", counted(looks)) for _ in range(2)]

    assert asyncio.run(fetch()) == ["look 1", "look 2"]


def test_a_failure_reaches_waiting_callers_and_is_not_cached() -> None:
    def fail() -> str:
        raise OSError("the catalog is away")

    async def fetch() -> str:
        lookups = Lookups(threads=1, seconds=600, patience=30)
        with pytest.raises(OSError, match="away"):
            await lookups.get("tables", fail)
        return await lookups.get("tables", counted([]))

    assert asyncio.run(fetch()) == "look 1"


def test_after_patience_ends_the_lookup_continues_for_later_callers() -> None:
    looks: list[str] = []
    begin = threading.Event()

    async def fetch() -> str:
        lookups = Lookups(threads=1, seconds=600, patience=0.05)
        with pytest.raises(TimeoutError):
            await lookups.get("tables", counted(looks, begin))
        begin.set()
        while not looks:
            await asyncio.sleep(0.01)
        return await lookups.get("tables", counted(looks))

    assert asyncio.run(fetch()) == "look 1"
