"""Lines of a job that are stored in XCom, and how often."""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecdc.submit.job_run import PROGRESS_KEY, ProgressForwarder

PROGRESS = "progress of "


def test_progress_is_stored_by_subject_and_not_for_every_line() -> None:
    stored: list[Any] = []
    clock = [0.0]

    def push(key: str, value: Any) -> None:
        assert key == PROGRESS_KEY
        stored.append([(each["what"], each["how_far"]) for each in reversed(value)])

    forward = ProgressForwarder(push, lambda: clock[0]).listeners[PROGRESS]
    forward("shop.orders: 1 of 40 file groups, about 5 minutes left")
    clock[0] = 1
    forward("shop.items: 1 of 2 file groups, about 3 minutes left")
    clock[0] = 6
    forward("shop.orders: 2 of 40 file groups, about 4 minutes left")
    orders = ("shop.orders", "1 of 40 file groups, about 5 minutes left")
    items = ("shop.items", "1 of 2 file groups, about 3 minutes left")
    later = ("shop.orders", "2 of 40 file groups, about 4 minutes left")
    assert stored == [[orders], [later, items]]


def test_the_newest_of_many_are_stored() -> None:
    stored: list[Any] = []
    clock = iter(range(0, 1000, 10))
    forward = ProgressForwarder(lambda _, value: stored.append(value), lambda: next(clock)).listeners[PROGRESS]
    for number in range(30):
        forward(f"t{number}: over")
    assert [each["what"] for each in reversed(stored[-1])] == [f"t{number}" for number in range(29, 9, -1)]


def test_a_job_goes_on_if_airflow_does_not_respond() -> None:
    def push(key: str, value: Any) -> None:
        raise ConnectionError

    heard = ProgressForwarder(push)
    heard.listeners[PROGRESS]("shop.orders: 1 of 2 file groups")
    heard.listeners["Spark UI at "]("http://worker:4040")
    heard.end()
