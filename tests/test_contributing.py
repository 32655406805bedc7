"""The recipes of CONTRIBUTING.md, each checked with the files that register its example."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
#: files that register an example and must be in its recipe; docs and tests mention it in other places too
REGISTERING = ("airflow_provider_lakecdc", "spark_jobs", "dags", ".airflow-registry.yaml", "setup.cfg")
_RECIPE = re.compile(r"^### (.+)\n(?:(?!###).*\n)*?<!-- recipe: (.+) -->\n\n((?:\|.*\n)+)", re.M)
RECIPES = {
    title: (pattern, re.findall(r"^\| `([^`]+)` \|", table, re.M)) for title, pattern, table in _RECIPE.findall(PAGE)
}


@cache
def registering_files() -> dict[str, str]:
    """Return the text of each file that may register an example, by its path."""
    paths = [
        path
        for name in REGISTERING
        for path in ((ROOT / name).rglob("*.py") if (ROOT / name).is_dir() else [ROOT / name])
    ]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def is_mentioned(pattern: str, name: str) -> bool:
    """Return whether a file, or one below a folder, mentions the example of a recipe."""
    path = ROOT / name
    paths = list(path.rglob("*.py")) if path.is_dir() else [path]
    return any(each.exists() and re.search(pattern, name + each.read_text()) for each in paths)


def test_every_recipe_is_followed() -> None:
    assert list(RECIPES) == re.findall(r"^### (.+)$", PAGE, re.M)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_every_file_that_registers_its_example(title: str) -> None:
    pattern, named = RECIPES[title]
    registering = {path for path, text in registering_files().items() if re.search(pattern, path + text)}
    assert {path for path in registering if not path.startswith(tuple(named))} == set(), "missing in the recipe"


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_no_other_file(title: str) -> None:
    pattern, named = RECIPES[title]
    assert [name for name in named if not is_mentioned(pattern, name)] == []


def test_the_commands_of_the_first_hour_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"(?:`|^ +)make ([a-z-]+)", PAGE, re.M)) <= set(targets)
    chosen = re.findall(r"pytest -q (\S+?)(?: -k (\w+))?$", PAGE, re.M)
    assert len(chosen) == 2
    assert [path for path, name in chosen if not re.search(rf"def test_\w*{name}", (ROOT / path).read_text())] == []
