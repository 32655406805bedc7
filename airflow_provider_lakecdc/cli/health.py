"""``health``: list the least healthy tables first, from metadata alone."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecdc.cli.tables import configuration, selected
from airflow_provider_lakecdc.cli.terminal import print_errors, print_grid, print_json, print_lines
from airflow_provider_lakecdc.lake.status import report_statuses
from airflow_provider_lakecdc.observe.number_format import age
from lakecdc.metadata.freshness import judge_table
from lakecdc.metadata.health import grade, worst_losses

_HEADINGS = {
    "table": "left",
    "score": "right",
    "lost to": "left",
    "files": "right",
    "needed": "right",
    "eq": "right",
    "pos": "right",
    "dv": "right",
    "written": "right",
}
_LEGEND = (
    "eq equality-delete files, pos position-delete files, dv deletion vectors; needed: data files of the target size"
)
_STYLES = {"good": "", "poor": "yellow", "bad": "red"}

Status = Mapping[str, Any]


def main(args: Namespace) -> int:
    """Measure tables and print them; return 1 if one of them does not exist or cannot be read, else 0."""
    catalog, tables = selected(args)
    statuses = report_statuses(catalog, tables, partitions=args.partitions, health=True)
    config = configuration(args)
    promises = config.promises if config else {}
    statuses = {name: status | _freshness(promises, name, status) for name, status in statuses.items()}
    statuses = dict(sorted(statuses.items(), key=lambda named: _score(named[1])))
    if args.json:
        print_json(statuses)
    else:
        _show(statuses)
    return int(any("error" in status for status in statuses.values()))


def _freshness(promises: Mapping[str, str | None], name: str, status: Status) -> dict[str, Any]:
    if "error" in status:
        return {}
    source_time, is_fed = (status["last_write"] or {}).get("source_time"), status["is_kept_fresh"]
    freshness = judge_table(promises, name, source_time, datetime.now(UTC), is_fed=is_fed)
    return {"freshness_problem": freshness.problem, **freshness.facts()} if freshness else {}


def _score(status: Status) -> float:
    """Return the sort key: unreadable tables first, tables without a snapshot last."""
    if "error" in status:
        return -1.0
    return float(status["health"]["score"]) if status["health"] else 101.0


def _show(statuses: Mapping[str, Status]) -> None:
    readable = {name: status for name, status in statuses.items() if "error" not in status}
    if readable:
        styles = [_STYLES[grade(_score(status))] for status in readable.values()]
        print_grid(_HEADINGS, map(_row, readable, readable.values()), styles)
        print_lines("", _LEGEND)
    for name, status in readable.items():
        for problem in filter(None, (status["readers_problem"], status.get("freshness_problem"))):
            print_lines("", f"{name}: {problem}")
        if status.get("partitions"):
            print_lines("", f"{name} by partition")
            headings = {"partition": "left", "records": "right", "last changed": "left"}
            print_grid(headings, _partitions(status))
    if errors := {name: status["error"] for name, status in statuses.items() if "error" in status}:
        print_lines("")
        print_errors(errors, "read")


def _row(name: str, status: Status) -> list[str]:
    written = age(status["last_write"]["written_at"] if status["last_write"] else None)
    if (health := status["health"]) is None:
        return [name, "-", "", "0", "0", "0", "0", "0", written]
    counts = ("data_files", "files_needed", "equality_delete_files", "position_delete_files", "deletion_vectors")
    numbers = [f"{health[count]:,}" for count in counts]
    return [
        name,
        f"{health['score']:.0f}",
        "\n".join(f"{what} {points:.0f}" for what, points in worst_losses(health["lost"])),
        *numbers,
        written,
    ]


def _partitions(status: Status) -> Iterator[list[str]]:
    for each in status["partitions"]:
        values = ", ".join(f"{name}={value}" for name, value in each["partition"].items()) or "-"
        yield [values, f"{each['records']:,}", each["last_changed"] or "-"]
