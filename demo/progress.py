"""A line for every step while it runs, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.markup import escape


class Progress:
    """Says on the terminal what is being done.

    :param console: where to.
    :param steps: how many there will be.
    """

    def __init__(self, console: Console, steps: int) -> None:
        self.console = console
        self.steps = steps
        self._number = 0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self._began, 1)

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """One step.

        :param title: what is being done.
        :return: takes up facts that the line shows at the end.
        """
        self._number += 1
        place = f"[{self._number:2}/{self.steps}]"
        began, facts = time.monotonic(), list[str]()
        waiting = self.console.status(escape(f"{place} {title}")) if self.console.is_terminal else nullcontext()
        if not self.console.is_terminal:
            # a log file shows at once what is going on; the line is completed below
            self.console.print(f"{place} {title} ...", markup=False, highlight=False, soft_wrap=True)
        with waiting:
            yield facts
        line = f"{place} {title}" if self.console.is_terminal else "        "
        told = f"  {'; '.join(facts)}" if facts else ""
        taken = f"{time.monotonic() - began:6.1f} s"
        self.console.print(f"{line}  {taken}{told}", markup=False, highlight=False, soft_wrap=True)
