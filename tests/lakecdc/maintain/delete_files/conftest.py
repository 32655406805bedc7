"""The shared checks say what differs when they fail; fail points let a test act in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakecdc.key_search import match
from lakecdc.runtime import failpoints

pytest.register_assert_rewrite("tests.lakecdc.maintain.delete_files.support")

Meanwhile = Callable[..., None]


@pytest.fixture
def by_iceberg(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many data files Iceberg's reader was asked to search, each time."""
    found, real = list[int](), match.deleted_positions

    def deleted_positions(table: Any, deletes: Any, tasks: Any) -> Any:
        found.append(len(tasks))
        return real(table, deletes, tasks)

    monkeypatch.setattr(match, "deleted_positions", deleted_positions)
    return found


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen each time the job reaches a moment, in whatever thread, but not within itself."""

    def happen(action: Callable[[], object], moment: str = "before_commit") -> None:
        busy = False

        def act(*reached: str) -> None:
            nonlocal busy
            # the point is to be hit again the next time
            failpoints._passes.clear()
            if not busy:
                busy = True
                try:
                    action()
                finally:
                    busy = False

        monkeypatch.setattr(failpoints, "_act", act)
        monkeypatch.setenv(failpoints.VARIABLE, f"rewrite_delete_files.{moment}=act")

    return happen


def once(action: Callable[[], object]) -> Callable[[], object]:
    """The action at the first call, nothing after."""
    actions = iter([action])
    return lambda: next(actions, lambda: None)()
