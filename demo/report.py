"""What the demo has found, as JSON and as a table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from demo.compare import Comparison
from demo.settings import Settings

Figures = Mapping[str, Mapping[str, Any]]
_KINDS = (("equality_deletes", "eq"), ("position_deletes", "pos"), ("deletion_vectors", "dv"))


def build(
    settings: Settings, seconds: float, before: Figures, after: Figures, comparisons: Mapping[str, Comparison]
) -> dict[str, Any]:
    """Put the report together.

    :param seconds: how long everything took.
    :param before: figures of :mod:`demo.measure` by table, as ingestion has left them.
    :param after: the same after governance.
    """
    return {
        "seed": settings.seed,
        "rows_to_begin_with": settings.rows,
        "hours": settings.hours,
        "seconds": seconds,
        "equal_to_source": all(comparison.equal for comparison in comparisons.values()),
        "tables": {
            name: {
                "rows": comparison.rows,
                "rows_at_source": comparison.expected_rows,
                "equal_to_source": comparison.equal,
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
    """Write the report where :class:`Settings` says."""
    settings.report.write_text(json.dumps(report, indent=2) + "\n")


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print the report."""
    grid = Grid(title="before governance → after", title_justify="left")
    grid.add_column("table")
    for heading in ("rows", "data files", "delete files", "full scan, s", "point query, s"):
        grid.add_column(heading, justify="right")
    grid.add_column("equal to source")
    for name, table in report["tables"].items():
        before, after = table["before"], table["after"]
        grid.add_row(
            name,
            f"{table['rows']:,}",
            f"{before['data_files']} → {after['data_files']}",
            f"{_deletes(before)} → {_deletes(after)}",
            f"{before['scan_seconds']:.2f} → {after['scan_seconds']:.2f}",
            f"{before['point_seconds']:.2f} → {after['point_seconds']:.2f}",
            "yes" if table["equal_to_source"] else "NO",
        )
    console.print(grid)
    console.print("delete files: eq equality deletes, pos position deletes, dv deletion vectors", highlight=False)
    for name, table in report["tables"].items():
        if not table["equal_to_source"]:
            counts = f"{table['missing_rows']} rows are missing, {table['unexpected_rows']} are too many"
            console.print(f"{name} differs from its source: {counts}", style="red", markup=False)
        for difference in table["differences"]:
            console.print(f"  {difference}", markup=False, highlight=False, soft_wrap=True)


def _deletes(figures: Mapping[str, Any]) -> str:
    return " ".join(f"{figures[kind]} {short}" for kind, short in _KINDS if figures[kind]) or "0"
