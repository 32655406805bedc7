"""Params of the DAGs' runs: the trigger form on Airflow's web page, or the run's ``conf``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

# templates of the params in task arguments
ONLY_TABLES = "{{ (params.tables or []) | join(',') }}"
IS_DRY_RUN = "{{ params.dry_run }}"
RULES = "{{ (params.rules or []) | join(',') }}"
RELOADED = "{{ (params.reload or []) | join(',') }}"


def run_params(tables: Sequence[str] | None) -> dict[str, Param]:
    """Return the params of all DAGs; Airflow rejects invalid values before it creates a run.

    :param tables: tables that a run can be restricted to; None if only the run knows them.
    """
    return {
        "tables": _some_of(tables, "Tables", "Work only on these tables; leave it empty for all."),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Plan and measure, write to the log, change nothing."
        ),
    }


def reload_param(tables: Sequence[str]) -> dict[str, Param]:
    """Return the param of DAGs whose source can load tables in full again.

    :param tables: the DAG's targets.
    """
    text = "Load these tables in full again; readers see the old rows until the load is complete."
    return {"reload": _some_of(tables, "Reload", text)}


def _some_of(tables: Sequence[str] | None, title: str, text: str) -> Param:
    known: dict[str, Any] = {} if tables is None else {"enum": list(tables)}
    shown: dict[str, Any] = {} if tables is None else {"examples": list(tables)}
    return Param(
        None, type=["null", "array"], items={"type": "string", **known}, title=title, description=text, **shown
    )
