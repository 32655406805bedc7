"""``costs``: show what jobs cost by DAG run and by table, and what they saved readers."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta

from airflow_provider_lakecdc.cli.history import parse_since
from airflow_provider_lakecdc.cli.tables import catalog_of, configuration
from airflow_provider_lakecdc.cli.terminal import print_grid, print_json, print_lines
from airflow_provider_lakecdc.governance.costs import Costs, costs_of

_DAYS = 30
_RUNS = {"ended": "left", "dag": "left", "tables": "right", "core-s": "right", "cost": "right", "unknown": "right"}
_TABLES = {
    "table": "left",
    "core-s a month": "right",
    "cost a month": "right",
    "unknown": "right",
    "files spared": "right",
    "reads a day": "right",
    "spared": "right",
}


def main(args: Namespace) -> int:
    """Print the costs; return 0, also if nothing is recorded."""
    config = configuration(args)
    since = parse_since(args.since) if args.since else datetime.now(UTC) - timedelta(days=_DAYS)
    prices, query_log = (config.prices, config.query_log) if config else (None, None)
    costs = costs_of(catalog_of(args, config), since, prices, query_log)
    if args.json:
        print_json(costs.facts())
    elif costs.runs:
        _show(costs)
    else:
        print_lines("No matching rows are recorded.")
    return 0


def _show(costs: Costs) -> None:
    runs = [
        [f"{run.finished_at:%Y-%m-%d %H:%M}", run.dag_id, str(run.tables), f"{run.core_seconds:,.2f}"]
        + [costs.cpu(run.core_seconds), str(run.unmeasured)]
        for run in costs.runs
    ]
    print_grid(_RUNS, runs)
    print_lines("")
    tables = [
        [each.table, f"{(month := costs.month(each.core_seconds)):,.2f}", costs.cpu(month), str(each.unmeasured)]
        + [f"{each.files_spared:,.0f}", "-" if each.reads_per_day is None else f"{each.reads_per_day:,.1f}"]
        + [costs.reads(each.requests_spared)]
        for each in costs.tables
    ]
    print_grid(_TABLES, tables)
    print_lines(
        "",
        f"Costs are for the CPU time of Spark's tasks. A month is extrapolated from {costs.days:.1f} days.",
        "unknown: steps on tables without a measured CPU time; files spared: files that a scan of the whole table",
        "opened less after jobs than before, measured; spared: estimated, as if each read had scanned the whole table.",
    )
