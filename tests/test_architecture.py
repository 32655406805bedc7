"""The architecture page: its laws name existing tests, and its drawings match the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
LAWS = dict(re.findall(r"^\| (\d+) \| (\*\*.*) \|$", PAGE, re.M))
_STEP = re.compile(r"( *)([a-z_]+(?:\.[a-z0-9_]+)+) {2,}\S")


def steps(drawing: str) -> Iterator[tuple[str | None, str]]:
    """Yield each room of a drawing with the room that calls it, None where a process begins."""
    callers: list[str] = []
    for line in drawing.splitlines():
        if not line or line.startswith("-- "):
            callers = []
            continue
        step = _STEP.match(line)
        assert step, f"neither a caption nor a room: {line!r}"
        depth, room = len(step[1]) // 2, step[2]
        assert depth <= len(callers), f"no room calls {room}"
        callers[depth:] = [room]
        yield (callers[depth - 1] if depth else None), room


DRAWINGS = re.findall(r"^```text walk\n(.*?)^```", PAGE, re.M | re.S)
STEPS = sorted({(caller or "", room) for drawing in DRAWINGS for caller, room in steps(drawing)})


@cache
def files_of(room: str) -> tuple[Path, ...]:
    """Return the Python files of a module or package."""
    root = ROOT / "spark_jobs" if room.startswith("lakecdc.") else ROOT
    path = root.joinpath(*room.split("."))
    return tuple(path.rglob("*.py")) if path.is_dir() else tuple(p for p in [path.with_suffix(".py")] if p.exists())


def imported_by(path: Path) -> Iterator[str]:
    """Yield the names that a module imports, and those of functions that it imports by name, such as ``a.b:c``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+:\w+", node.value):
            yield node.value.replace(":", ".")


def imports(caller: str, room: str) -> bool:
    """Return whether some module of one room imports from another."""
    names = (name for path in files_of(caller) for name in imported_by(path))
    return any(name == room or name.startswith(f"{room}.") for name in names)


def test_there_are_nineteen_laws() -> None:
    assert list(LAWS) == [str(number) for number in range(1, 20)]


@pytest.mark.parametrize("law", LAWS)
def test_the_tests_of_a_law_run_in_ci(law: str) -> None:
    named = re.findall(r"`(tests/[\w/.]+)::(\w+)`", LAWS[law])
    assert named
    missing = [f"{path}::{name}" for path, name in named if name not in ci_tests_of(ROOT / path)]
    assert missing == [], "renamed, removed or only in make test-soak"


def ci_tests_of(path: Path) -> set[str]:
    """Return the tests of a file that are not soak tests; none if the file does not exist."""
    tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if any(mark.startswith("pytestmark") and "soak" in mark for mark in marks):
        return set()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        each.name for each in functions if not any(ast.unparse(d) == "pytest.mark.soak" for d in each.decorator_list)
    }


def test_both_ways_are_drawn() -> None:
    assert [sum(1 for _ in steps(drawing)) > 5 for drawing in DRAWINGS] == [True, True]


@pytest.mark.parametrize(("caller", "room"), STEPS, ids=lambda name: name or "start")
def test_a_room_imports_the_rooms_drawn_below_it(caller: str, room: str) -> None:
    assert files_of(room), f"{room} does not exist"
    assert not caller or room.startswith(f"{caller}.") or imports(caller, room)


def test_a_drawing_that_contradicts_the_imports_is_noticed() -> None:
    assert not imports("lakecdc.iceberg", "lakecdc.ingest")
    assert list(steps("a.b   x\n  a.c   y\n\n-- next\na.d   z\n")) == [(None, "a.b"), ("a.b", "a.c"), (None, "a.d")]
