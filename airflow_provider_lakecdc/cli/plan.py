"""``plan``: what a run of a governance DAG would do now, what that is predicted to take, and why."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_lakecdc import templates
from airflow_provider_lakecdc.cli.tables import configuration
from airflow_provider_lakecdc.cli.terminal import print_errors, print_grid, print_json, print_lines
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator
from lakecdc.contract.errors import InputError, SpecError
from lakecdc.metadata.plan import Action, Plan
from lakecdc.metadata.policy import matching

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from airflow_provider_lakecdc.assessment import Assessment
    from airflow_provider_lakecdc.templates.config import LakeConfig

_DAGS: Mapping[str, Callable[[LakeConfig], DAG]] = {
    "hourly": templates.hourly_governance_dag,
    "nightly": templates.nightly_governance_dag,
    "weekly": templates.weekly_governance_dag,
}


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
    dag = _DAGS[asked.dag](config)
    assess, chosen = dag.get_task("assess"), dag.get_task("plan")
    assert isinstance(assess, AssessTablesOperator) and isinstance(chosen, PlanOperator)
    found = assess.assessed()
    found = _narrowed(found, asked.tables)
    plan = chosen.chosen(found)
    unseen = {each.table: each.error for each in found.tables if each.error}
    if asked.json:
        print_json({"dag": dag.dag_id, **plan.facts(), "core_seconds": plan.core_seconds, "errors": unseen})
    else:
        _show(dag.dag_id, found, plan)
        print_errors(unseen, "looked at")
    return int(bool(unseen))


def _narrowed(found: Assessment, tables: list[str]) -> Assessment:
    """The part of an assessment that is about some tables and what stands beside them.

    :param tables: names and patterns; empty is all of them.
    """
    if not tables:
        return found
    named = {*matching(tables, [each.table for each in found.tables])}
    kept = {each.table for each in found.tables if {each.table, each.beside} & named}
    if not kept:
        raise InputError(f"Governance works on none of {', '.join(tables)}.", hint="See tables of the configuration.")
    return replace(
        found,
        tables=tuple(each for each in found.tables if each.table in kept),
        actions=tuple(each for each in found.actions if each.table in kept),
        skipped=tuple(each for each in found.skipped if each.table in kept),
    )


def _show(dag: str, found: Assessment, plan: Plan) -> None:
    limit = "" if plan.budget_core_seconds is None else f" of {plan.budget_core_seconds:g}"
    worked = {action.table for action in plan.chosen} | {left.table for left in plan.skipped}
    idle = sum(each.table not in worked and not each.error for each in found.tables)
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
    print_lines("", f"{dag} would take {plan.core_seconds:g} core-seconds{limit}; {idle} tables need nothing.")


def _row(action: Action) -> list[str]:
    cost = "?" if action.core_seconds is None else f"{action.core_seconds:,.2f}"
    why = f"{action.reason}; {action.due}" if action.due else action.reason
    return [action.table, action.job, cost, f"{action.benefit:,.0f}", why]
