"""``plan``: what a run of a governance DAG would do now, what that is predicted to take, and why."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.cli.tables import configuration
from airflow_provider_lakecdc.cli.terminal import print_errors, print_grid, print_json, print_lines
from airflow_provider_lakecdc.governance.planning import Planned, planned
from lakecdc.contract.errors import SpecError

if TYPE_CHECKING:
    from lakecdc.metadata.plan import Action


def main(asked: Namespace) -> int:
    """Look at the tables, choose as the DAG's tasks ``assess`` and ``plan`` do, and print what they would do.

    :return: 1 if a table could not be looked at, else 0.
    """
    config = configuration(asked)
    if config is None:
        raise SpecError(
            "There is no configuration, which says what may be done to which tables.",
            hint="Name one by --config, the environment variable LAKECDC_CONFIG or [lakecdc] config_file.",
        )
    found = planned(config, asked.dag, asked.tables)
    if asked.json:
        costs = {"core_seconds": found.plan.core_seconds, "errors": found.errors, "absent": found.absent}
        print_json({"dag": found.dag_id, **found.plan.facts(), **costs})
    else:
        _show(found)
        print_errors(found.errors, "looked at")
    return int(bool(found.errors))


def _show(found: Planned) -> None:
    plan = found.plan
    limit = "" if plan.budget_core_seconds is None else f" of {plan.budget_core_seconds:g}"
    if plan.chosen:
        headings = {"table": "left", "job": "left", "core-s": "right", "spares": "right", "why": "left"}
        print_grid(headings, map(_row, plan.chosen))
        print_lines(
            "", "core-s predicted core-seconds, ? only the job can tell; spares files that readers open no more"
        )
    if plan.skipped:
        print_lines("", "Left out:")
        rows = [[each.table, each.job, each.reason] for each in plan.skipped]
        print_grid({"table": "left", "job": "left", "why": "left"}, rows)
    print_lines(*(f"{table} does not exist yet." for table in found.absent))
    told = f"{found.dag_id} would take {plan.core_seconds:g} core-seconds{limit}"
    print_lines("", f"{told}; {found.idle_tables} tables need nothing.")


def _row(action: Action) -> list[str]:
    cost = "?" if action.core_seconds is None else f"{action.core_seconds:,.2f}"
    why = f"{action.reason}; {action.due}" if action.due else action.reason
    return [action.table, action.job, cost, f"{action.benefit:,.0f}", why]
