"""The shared checks say what differs when they fail; fail points let a test act in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakecdc.runtime import failpoints

pytest.register_assert_rewrite("tests.lakecdc.maintain.delete_files.support")

Meanwhile = Callable[..., None]


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
