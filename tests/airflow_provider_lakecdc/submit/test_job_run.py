"""What of a job's words is kept in XCom, and how often."""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecdc.submit.job_run import PROGRESS_KEY, ProgressForwarder

PROGRESS = "progress of "


def test_progress_is_kept_by_what_it_is_of_and_not_at_every_line() -> None:
    kept: list[Any] = []
    clock = [0.0]

    def push(key: str, value: Any) -> None:
        assert key == PROGRESS_KEY
        kept.append([(each["what"], each["how_far"]) for each in reversed(value)])

    tell = ProgressForwarder(push, lambda: clock[0]).listeners[PROGRESS]
    tell("shop.orders: 1 of 40 file groups, about 5 minutes left")
    clock[0] = 1
    tell("shop.items: 1 of 2 file groups, about 3 minutes left")
    clock[0] = 6
    tell("shop.orders: 2 of 40 file groups, about 4 minutes left")
    orders = ("shop.orders", "1 of 40 file groups, about 5 minutes left")
    items = ("shop.items", "1 of 2 file groups, about 3 minutes left")
    later = ("shop.orders", "2 of 40 file groups, about 4 minutes left")
    assert kept == [[orders], [later, items]]


def test_the_newest_of_many_are_kept() -> None:
    kept: list[Any] = []
    clock = iter(range(0, 1000, 10))
    tell = ProgressForwarder(lambda _, value: kept.append(value), lambda: next(clock)).listeners[PROGRESS]
    for number in range(30):
        tell(f"t{number}: over")
    assert [each["what"] for each in reversed(kept[-1])] == [f"t{number}" for number in range(29, 9, -1)]


def test_a_job_goes_on_though_airflow_does_not_listen() -> None:
    def push(key: str, value: Any) -> None:
        raise ConnectionError

    heard = ProgressForwarder(push)
    heard.listeners[PROGRESS]("shop.orders: 1 of 2 file groups")
    heard.listeners["Spark UI at "]("http://worker:4040")
    heard.end()
