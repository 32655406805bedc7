"""``plan``: show what a run of a governance DAG would do now, its predicted cost, and why."""

from __future__ import annotations

from argparse import Namespace

from airflow_provider_lakecdc.cli.tables import configuration
from airflow_provider_lakecdc.cli.terminal import print_errors, print_grid, print_json, print_lines
from airflow_provider_lakecdc.templates.planning import PlannedRun, plan_run
from lakecdc.contract.errors import SpecError
from lakecdc.metadata.plan import Action


def main(args: Namespace) -> int:
    """Assess the tables and plan as the DAG's tasks do; print the plan and return 1 if an assessment failed, else 0."""
    config = configuration(args)
    if config is None:
        raise SpecError(
            "No configuration is set, which defines the jobs allowed on each table.",
            hint="Set one by --config, the environment variable LAKECDC_CONFIG or [lakecdc] config_file.",
        )
    result = plan_run(config, args.dag, args.tables)
    if args.json:
        costs = {"core_seconds": result.plan.core_seconds, "errors": result.errors, "absent": result.absent}
        money = {"cost": result.cost, "currency": result.prices.currency} if result.prices else {}
        print_json({"dag": result.dag_id, **result.plan.facts(), **costs, **money})
    else:
        _show(result)
        print_errors(result.errors, "assessed")
    return int(bool(result.errors))


def _show(result: PlannedRun) -> None:
    plan = result.plan
    limit = "" if plan.budget_core_seconds is None else f" of {plan.budget_core_seconds:g}"
    if plan.chosen:
        headings = {"table": "left", "job": "left", "core-s": "right", "spares": "right", "why": "left"}
        print_grid(headings, map(_row, plan.chosen))
        print_lines(
            "",
            "core-s: predicted core-seconds, ? unknown until the job runs; spares: files that readers no longer open",
        )
    if plan.skipped:
        print_lines("", "Skipped:")
        rows = [[each.table, each.job, each.reason] for each in plan.skipped]
        print_grid({"table": "left", "job": "left", "why": "left"}, rows)
    print_lines(*(f"{table} does not exist yet." for table in result.absent))
    cost = f", {result.prices.format_cpu(plan.core_seconds)} of CPU time" if result.prices else ""
    total = f"{result.dag_id} would take {plan.core_seconds:g} core-seconds{limit}{cost}"
    print_lines("", f"{total}; {result.idle_tables} tables need nothing.")


def _row(action: Action) -> list[str]:
    cost = "?" if action.core_seconds is None else f"{action.core_seconds:,.2f}"
    why = f"{action.reason}; {action.due}" if action.due else action.reason
    return [action.table, action.job, cost, f"{action.benefit:,.0f}", why]
