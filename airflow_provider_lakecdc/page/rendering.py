"""Rendering of HTML; all values are escaped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_provider_lakecdc.observe.addresses import link
from airflow_provider_lakecdc.observe.number_format import age, duration, number, size
from lakecdc.metadata.health import REGAINED_BY, grade, worst_losses

if TYPE_CHECKING:
    from airflow_provider_lakecdc.page.history import Task

HERE = Path(__file__).parent
STATIC = HERE / "static"


def render(template: str, **facts: Any) -> str:
    """Render a template, a file in ``templates`` without its extension."""
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
    environment.globals |= {"grade": grade, "worst_losses": worst_losses, "remedy": _remedy}
    environment.filters |= {"age": age, "duration": duration, "size": size, "number": number}
    environment.filters |= {"moment": "{:%d %b %H:%M}".format, "count_of": _count_of, "sentence": _sentence}
    return environment


def _count_of(value: float, name: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number(value)} {name}{'' if value == 1 else 's'}"


def _remedy(lost: Mapping[str, float]) -> str:
    """Return the reason that lowers a score most, and the job that helps."""
    reason, points = next(iter(worst_losses(lost)), (None, 0.0))
    if reason is None:
        return "Several small losses."
    job = REGAINED_BY.get(reason, "expire_snapshots")
    return f"{reason.replace('_', ' ').capitalize()}: −{number(points)} points. Run {job}."


def _sentence(text: str) -> str:
    """Return a reason as a sentence; a leading name, such as a table's, is not capitalized."""
    text = text.strip()
    first = text.partition(" ")[0]
    text = text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
    return text if not text or text[-1] in ".!?…" else f"{text}."


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
