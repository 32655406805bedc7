"""Histories with the state of the source at each moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.moments.job import restore_moment
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed, PlainHistory, truncate
from tests.lakecdc.ingest.histories import History

State = list[tuple[Any, ...]]


@dataclass
class Remembered(History):
    """A history that records the source's rows after each event.

    :ivar states: rows by moment, milliseconds since 1970.
    """

    states: dict[int, State] = field(default_factory=dict)

    def truncate(self) -> None:
        """Add a TRUNCATE."""
        event = truncate(self)
        event["value"]["source"]["ts_ms"] = 1_700_000_000_000 + self.lsn
        self.states[1_700_000_000_000 + self.lsn] = []

    def moments(self) -> list[int]:
        """Return the moments of events, oldest first."""
        return sorted(self.states)

    def at(self, moment: int) -> State:
        """Return the source's rows at a moment."""
        last = max((known for known in self.states if known <= moment), default=None)
        return self.states[last] if last is not None else []

    def _event(self, *arguments: Any, **named: Any) -> None:
        super()._event(*arguments, **named)
        self.states[1_700_000_000_000 + self.lsn] = sorted(self.expected(), key=str)


@dataclass
class RememberedPlain(Remembered, PlainHistory):
    """The same with events in any order of arrival."""


def iso(moment: int) -> str:
    """Format milliseconds since 1970 as text."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)).isoformat()


def fed(lake: Lake, folder: Path, name: str = "", **target: Any) -> Feed:
    """Return the feed of a table with a history table, fed from files."""
    name = name or lake.new_name("moment")
    folder.mkdir(exist_ok=True)
    return Feed(lake, folder, {"history_table": f"{name}_history", **target}, table=name)


def restored(lake: Lake, *names: str, moment: str | None, **options: Any) -> list[TableReport]:
    """Run the job as the job runner does."""
    histories = {name: f"{name}_history" for name in names}
    options = {"moment": moment, "history_tables": histories, **options}
    report = run(parse_spec(lake.spec("restore_moment", *names, options=options)), restore_moment)
    assert not report.error, report.error
    return list(report.tables)


def shown(feed: Feed, branch: str) -> State:
    """Read a branch with DuckDB."""
    return sorted(feed.lake.duckdb_rows(feed.table, COLUMNS, branch), key=str)
