"""Progress of the demo on the terminal: a line per step with its duration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.markup import escape


class Progress:
    """Progress of the demo's steps."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console = console
        self.steps = steps
        self._number = 0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return round(time.monotonic() - self._began, 1)

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Show a step while it runs.

        :return: a list for facts to show at the end.
        """
        self._number += 1
        place = f"[{self._number:2}/{self.steps}]"
        began, facts = time.monotonic(), list[str]()
        waiting = self.console.status(escape(f"{place} {title}")) if self.console.is_terminal else nullcontext()
        if not self.console.is_terminal:
            # a log file shows the start of the step; the line is completed below
            self.console.print(f"{place} {title} ...", markup=False, highlight=False, soft_wrap=True)
        with waiting:
            yield facts
        line = f"{place} {title}" if self.console.is_terminal else "        "
        summary = f"  {'; '.join(facts)}" if facts else ""
        duration = f"{time.monotonic() - began:6.1f} s"
        self.console.print(f"{line}  {duration}{summary}", markup=False, highlight=False, soft_wrap=True)
