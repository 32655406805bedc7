"""Looks are shared, kept for a while, and waited for with patience alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from airflow_provider_lakecdc.page.lookups import Lookups


def counted(answers: list[str], begin: threading.Event | None = None) -> Callable[[], str]:
    """A look that may wait for an event, and tells how often somebody has looked."""

    def look() -> str:
        if begin:
            assert begin.wait(30)
        answers.append("")
        return f"look {len(answers)}"

    return look


def test_all_who_ask_meanwhile_and_soon_afterwards_share_a_look() -> None:
    looks: list[str] = []
    begin = threading.Event()

    async def ask() -> list[str]:
        lookups = Lookups(threads=2, seconds=600, patience=30)
        asked = [asyncio.create_task(lookups.get("tables", counted(looks, begin))) for _ in range(5)]
        await asyncio.sleep(0)
        begin.set()
        return [*await asyncio.gather(*asked), await lookups.get("tables", counted(looks))]

    assert asyncio.run(ask()) == ["look 1"] * 6


def test_an_old_answer_is_looked_for_again() -> None:
    looks: list[str] = []

    async def ask() -> list[str]:
        lookups = Lookups(threads=1, seconds=0, patience=30)
        return [await lookups.get("tables", counted(looks)) for _ in range(2)]

    assert asyncio.run(ask()) == ["look 1", "look 2"]


def test_a_failure_reaches_waiting_callers_and_is_not_cached() -> None:
    def fail() -> str:
        raise OSError("the catalog is away")

    async def ask() -> str:
        lookups = Lookups(threads=1, seconds=600, patience=30)
        with pytest.raises(OSError, match="away"):
            await lookups.get("tables", fail)
        return await lookups.get("tables", counted([]))

    assert asyncio.run(ask()) == "look 1"


def test_patience_ends_and_the_look_goes_on_for_who_comes_back() -> None:
    looks: list[str] = []
    begin = threading.Event()

    async def ask() -> str:
        lookups = Lookups(threads=1, seconds=600, patience=0.05)
        with pytest.raises(TimeoutError):
            await lookups.get("tables", counted(looks, begin))
        begin.set()
        while not looks:
            await asyncio.sleep(0.01)
        return await lookups.get("tables", counted(looks))

    assert asyncio.run(ask()) == "look 1"
