"""``catalog copy``: register tables of one catalog in another one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecdc.cli.terminal import print_errors, print_grid, print_json, print_lines
from airflow_provider_lakecdc.governance.discovery import tables_in
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.table_copy import open_copier, select_tables
from lakecdc.contract.errors import SpecError


def main(args: Namespace) -> int:
    """Copy tables, or with ``--dry-run`` only compare; return 1 if one of them cannot be copied, else 0."""
    if args.source == args.target:
        raise SpecError("--from and --to are one connection.", hint="Name the connection of the other catalog by --to.")
    source, target = get_catalog(args.source), get_catalog(args.target)
    with open_copier(source, target) as (copier, opened):
        tables = select_tables(sorted(tables_in(opened)), args.tables)
        outcomes = copier.plan(tables)
        if not args.dry_run:
            outcomes |= copier.write()
    if args.json:
        print_json(outcomes)
    else:
        _show(outcomes)
    return int(any("error" in outcome for outcome in outcomes.values()))


def _show(outcomes: Mapping[str, Mapping[str, Any]]) -> None:
    if not outcomes:
        print_lines("The catalog has no tables.")
        return
    rows = [(name, each.get("outcome", "failed"), each.get("metadata", "-")) for name, each in outcomes.items()]
    styles = ["red" if "error" in each else "" for each in outcomes.values()]
    print_grid({"table": "left", "outcome": "left", "metadata": "left"}, rows, styles)
    if errors := {name: each["error"] for name, each in outcomes.items() if "error" in each}:
        print_lines("")
        print_errors(errors, "copied")
