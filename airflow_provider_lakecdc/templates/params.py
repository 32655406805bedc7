"""What a run of a DAG can be told when it is triggered: the form on Airflow's web page, or the run's ``conf``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

# what the tasks make of them, as templates
ONLY_TABLES = "{{ (params.tables or []) | join(',') }}"
IS_DRY_RUN = "{{ params.dry_run }}"
RULES = "{{ (params.rules or []) | join(',') }}"
RELOADED = "{{ (params.reload or []) | join(',') }}"


def run_params(tables: Sequence[str] | None) -> dict[str, Param]:
    """The DAG's params; Airflow refuses values that do not fit before it makes a run.

    :param tables: those that a run can be narrowed to; None if only the run can tell.
    """
    return {
        "tables": _some_of(tables, "Tables", "Work on these tables alone; leave it empty for all of them."),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Plan and measure, write to the log, change nothing."
        ),
    }


def reload_param(tables: Sequence[str]) -> dict[str, Param]:
    """The param of a DAG whose source can load tables in full once more.

    :param tables: its targets.
    """
    text = "Load these tables in full once more; readers have the rows of before until the load is complete."
    return {"reload": _some_of(tables, "Reload", text)}


def _some_of(tables: Sequence[str] | None, title: str, text: str) -> Param:
    known: dict[str, Any] = {} if tables is None else {"enum": list(tables)}
    shown: dict[str, Any] = {} if tables is None else {"examples": list(tables)}
    return Param(
        None, type=["null", "array"], items={"type": "string", **known}, title=title, description=text, **shown
    )
