"""Rendering of HTML; all values are escaped."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_provider_lakecdc.observe import number_format
from airflow_provider_lakecdc.page.addresses import link
from lakecdc.metadata.health import grade, worst_losses

if TYPE_CHECKING:
    from airflow_provider_lakecdc.page.task import Task

HERE = Path(__file__).parent
STATIC = HERE / "static"


def render(template: str, **facts: Any) -> str:
    """Render a template.

    :param template: name of a file in ``templates`` without its extension.
    """
    return _environment().get_template(f"{template}.html").render(facts)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"link": link, "dag_run": _dag_run, "task_page": _task_page, "static": _static}
    environment.globals |= {"grade": grade, "worst_losses": worst_losses}
    environment.filters |= {"age": _age, "duration": _duration, "size": _size, "number": _number, "moment": _moment}
    return environment


def _static(name: str) -> str:
    """Return the address of a static file, which browsers cache until it changes."""
    return link(f"static/{name}", v=str(int((STATIC / name).stat().st_mtime)))


def _dag_run(dag_id: str, run_id: str) -> str:
    """Return the address of a DAG run on Airflow's own page, which is above the prefix."""
    return f"../dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def _task_page(task: Task) -> str:
    """Return the address of a task instance on Airflow's own page, with its log."""
    mapped = "" if task.map_index < 0 else f"/mapped/{task.map_index}"
    return f"{_dag_run(task.dag_id, task.run_id)}/tasks/{quote(task.task_id, safe='')}{mapped}"


def _moment(moment: datetime) -> str:
    return f"{moment:%d %b %H:%M}"


def _age(moment: datetime | str | None) -> str:
    return number_format.age(moment.isoformat() if isinstance(moment, datetime) else moment)


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else number_format.duration(seconds)


def _size(bytes: float | None) -> str:
    return "-" if bytes is None else number_format.size(bytes)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
