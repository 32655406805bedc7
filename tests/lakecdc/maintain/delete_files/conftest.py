"""Shared checks that report differences, and fail points at which a test can act during a run."""

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
    """Record how many data files each search by Iceberg's reader covers."""
    file_counts, real = list[int](), match.deleted_positions

    def deleted_positions(table: Any, deletes: Any, tasks: Any) -> Any:
        file_counts.append(len(tasks))
        return real(table, deletes, tasks)

    monkeypatch.setattr(match, "deleted_positions", deleted_positions)
    return file_counts


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Return a function that runs an action whenever the job reaches a fail point, but not within the action."""

    def happen(action: Callable[[], object], moment: str = "before_commit") -> None:
        busy = False

        def act(*reached: str) -> None:
            nonlocal busy
            # the fail point must be hit again the next time
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
    """Return a function that runs the action at its first call only."""
    actions = iter([action])
    return lambda: next(actions, lambda: None)()
