"""Update of the tables in the settings page from the code: ``python -m demo.settings_page``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from airflow_provider_lakecdc.get_provider_info import get_provider_info
from airflow_provider_lakecdc.governance.discovery import QueryLog
from airflow_provider_lakecdc.templates.config import LakeConfig, Retention, SparkConfig
from airflow_provider_lakecdc.templates.schedules import Schedules
from demo.settings import REPOSITORY
from lakecdc.metadata.debt import DebtLimits
from lakecdc.metadata.hurts import Alerts
from lakecdc.metadata.policy import TablePolicy, Window

PAGE = REPOSITORY / "docs" / "settings.md"
_TABLE = re.compile(r"(<!-- made from (\w+) -->\n).*?(?=<!-- until here -->)", re.DOTALL)
_PARAMETER = re.compile(r":param (\w+): (.*?)(?=\n\s*:(?:param|raises)|\Z)", re.DOTALL)
_DESCRIBED = (LakeConfig, SparkConfig, Retention, Schedules, DebtLimits, TablePolicy, Window, QueryLog, Alerts)
_CLASSES: dict[str, type[Any]] = {each.__name__: each for each in _DESCRIBED}


def with_tables(page: str) -> str:
    """Return the page with tables generated from the code."""
    return _TABLE.sub(lambda place: f"{place[1]}\n{_table(place[2])}\n", page)


def _table(name: str) -> str:
    rows = _of_class(_CLASSES[name]) if name in _CLASSES else _of_section(name)
    return "".join(f"| {' | '.join(row)} |\n" for row in (("setting", "meaning", "default"), ("---",) * 3, *rows))


def _of_class(described: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield rows of a configuration's fields, with the descriptions in its docstring."""
    meanings = dict(_PARAMETER.findall(described.__doc__ or ""))
    for field in fields(described):
        meaning = " ".join(meanings[field.name].split()).rstrip(".").replace("``", "`").replace("|", "\\|")
        yield f"`{field.name}`", meaning, _default(field)


def _default(field: Field[Any]) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    if field.default_factory is not MISSING:
        # nested settings have a table of their own
        return "`{}`" if isinstance(field.default_factory(), dict) else "see below"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return "" if value is None else f"`{json.dumps(value)}`"


def _of_section(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield rows of a section of Airflow's configuration, as the provider declares it."""
    for option, described in get_provider_info()["config"][name]["options"].items():
        default = described["default"]
        yield f"`{option}`", described["description"].rstrip("."), f"`{default}`" if default else ""


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
