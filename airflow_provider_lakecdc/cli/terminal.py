"""Output of commands: JSON, or tables that fit a terminal and are never cut in a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

# in a pipe, one row is one line
_ENDLESS = 10_000


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    print(json.dumps(document, indent=2, default=_text))


def print_lines(*lines: str) -> None:
    """Print text unchanged; a terminal folds long lines."""
    console = _console()
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def print_errors(errors: Mapping[str, str], what: str) -> None:
    """Print the error of each table, one per line; ``what`` is a participle, as in "cannot be read"."""
    print_lines(*(f"{name} cannot be {what}: {' '.join(error.split())}" for name, error in errors.items()))


def print_grid(headings: Mapping[str, str], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print a table; wide cells are folded, never cut.

    :param headings: of the columns, each with ``left`` or ``right``.
    :param rows: a cell per column; line breaks in a cell become commas in a pipe.
    :param styles: of the rows, such as ``red``.
    """
    console = _console()
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading, justify in headings.items():
        # text may be folded, numbers not
        grid.add_column(heading, justify=justify, overflow="fold", no_wrap=justify == "right")  # type: ignore[arg-type]
    for number, row in enumerate(rows):
        cells = row if console.is_terminal else [", ".join(cell.splitlines()) for cell in row]
        grid.add_row(*map(Text, cells), style=styles[number] if styles else None)
    with console.capture() as drawn:
        console.print(grid)
    text = drawn.get()
    # no padding in a pipe
    console.file.write(text if console.is_terminal else "\n".join(line.rstrip(" ") for line in text.split("\n")))


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on standard error what the command waits for."""
    console = Console(stderr=True, markup=False, highlight=False)
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _console() -> Console:
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _ENDLESS
    return console
