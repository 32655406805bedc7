"""Tables aggregated from files of events, and a plain Python model of the expected rows."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.lakecdc.ingest.apply.support import Events, Feed
from tests.lakecdc.ingest.histories import History

SUMS = {"total": "sum(n)", "numbers": "count(n)", "rows": "count(*)"}
#: aggregates, most of which cannot subtract a value
ALL = {
    **SUMS,
    "order": "min(n)",
    "made": "max(doc)",
    "n": "max",
    "docs": "collect_set(doc)",
    "every": "collect_list(n)",
}


@dataclass
class Grouped(History):
    """A source table whose rows share a few names; an update often changes the name."""

    def _text(self, stem: str) -> str:
        return f"{stem if stem == 'doc' else 'name'} {self.rng.randrange(4)}"


@dataclass
class AggregateFeed(Feed):
    """Files of events, the history table they feed, and the table aggregated from it."""

    target: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=lambda: ALL)

    def __post_init__(self) -> None:
        super().__post_init__()
        merge = {"engine": "aggregate", "group_by": ["name"], "columns": self.columns}
        self.target = {"history_table": f"{self.table}_history", "merge": merge, **self.target}

    def run(self) -> TableReport:
        report = run(parse_spec(self.spec), ingest)
        assert not report.error, report.error
        return report.tables[-1]

    def groups(self, table: str = "") -> dict[str, dict[str, Any]]:
        """Return the rows by name, read by DuckDB."""
        names = ["name", *self.columns, "_lakecdc_rows"]
        rows = self.lake.duckdb_rows(table or self.table, ", ".join(f'"{name}"' for name in names))
        assert len({row[0] for row in rows}) == len(rows)
        return {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}


def expected(history: History, columns: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Aggregate the rows of the source."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in history.rows.values():
        by_name.setdefault(row["name"], []).append(row)
    values: dict[str, dict[str, Any]] = {}
    for name, rows in by_name.items():
        values[name] = {"_lakecdc_rows": len(rows)}
        for column, text in columns.items():
            function, _, of = text.rstrip(")").partition("(")
            known = [1 if of == "*" else row[of or column] for row in rows]
            values[name][column] = _value(function, [value for value in known if value is not None])
    return values


def _value(function: str, known: list[Any]) -> Any:
    match function:
        case "count":
            return len(known)
        case "sum":
            return sum(known) if known else None
        case "min":
            return min(known, default=None)
        case "max":
            return max(known, default=None)
        case "collect_set":
            return sorted(set(known))
    return sorted(known)


def again(events: Iterable[dict[str, Any]], offset: int) -> Events:
    """Return the events as a restarted connector sends them again, at other offsets."""
    return [{**event, "offset": offset + number} for number, event in enumerate(events)]


def cut(rng: random.Random, events: Events, parts: int) -> list[Events]:
    """Cut the events at random places."""
    places = [0, *sorted(rng.randrange(len(events)) for _ in range(parts - 1)), len(events)]
    return [events[low:high] for low, high in zip(places[:-1], places[1:], strict=True) if high > low]
