"""The demo's report, as JSON and as a table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid

from demo.compare import Comparison
from demo.settings import Settings

Figures = Mapping[str, Mapping[str, Any]]
_KINDS = {"equality_deletes": "eq", "position_deletes": "pos", "deletion_vectors": "dv"}


def build(
    settings: Settings,
    seconds: float,
    measured: tuple[Figures, Figures],
    comparisons: Mapping[str, Comparison],
    reconciled: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Create the report.

    :param seconds: total duration.
    :param measured: figures of :mod:`demo.measure` by table, before and after governance.
    :param comparisons: results of DuckDB by table.
    :param reconciled: results of the job ``reconcile`` by table.
    """
    before, after = measured
    equal = {name: each.equal and reconciled[name]["outcome"] == "nothing" for name, each in comparisons.items()}
    return {
        "seed": settings.seed,
        "rows_to_begin_with": settings.rows,
        "hours": settings.hours,
        "seconds": seconds,
        "equal_to_source": all(equal.values()),
        "tables": {
            name: {
                "rows": comparison.rows,
                "rows_at_source": comparison.expected_rows,
                "equal_to_source": equal[name],
                "reconciled": reconciled[name]["reason"],
                "missing_rows": comparison.missing,
                "unexpected_rows": comparison.unexpected,
                "differences": list(comparison.differences),
                "before": dict(before[name]),
                "after": dict(after[name]),
            }
            for name, comparison in comparisons.items()
        },
    }


def write(settings: Settings, report: Mapping[str, Any]) -> None:
    """Write the report to :attr:`Settings.report`."""
    settings.report.write_text(json.dumps(report, indent=2) + "\n")


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print the report."""
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    grid.add_column("table", no_wrap=True)
    grid.add_column("governed", no_wrap=True)
    for heading in ("data\nfiles", *_KINDS.values(), "scan\ns", "point\ns", "rows"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("equal to\nsource", no_wrap=True)
    for name, table in report["tables"].items():
        equal = "yes" if table["equal_to_source"] else "NO"
        grid.add_row(name, "before", *_cells(table["before"]), "", "")
        grid.add_row("", "after", *_cells(table["after"]), f"{table['rows']:,}", equal, end_section=True)
    console.print(grid)
    console.print("eq equality-delete files, pos position-delete files, dv deletion vectors", highlight=False)
    console.print(f"{report['seconds']:.0f} s in all", highlight=False)
    for name, table in report["tables"].items():
        if not table["equal_to_source"]:
            console.print(f"{name} differs from its source", style="red", markup=False)
            console.print(f"  reconcile: {table['reconciled']}", markup=False, highlight=False, soft_wrap=True)
        if table["missing_rows"] or table["unexpected_rows"]:
            counts = f"{table['missing_rows']} rows are missing, {table['unexpected_rows']} are too many"
            console.print(f"  DuckDB: {counts}", markup=False, highlight=False)
        for difference in table["differences"]:
            console.print(f"  {difference}", markup=False, highlight=False, soft_wrap=True)


def _cells(figures: Mapping[str, Any]) -> list[str]:
    counts = [str(figures[kind]) for kind in ("data_files", *_KINDS)]
    return [*counts, f"{figures['scan_seconds']:.2f}", f"{figures['point_seconds']:.2f}"]
