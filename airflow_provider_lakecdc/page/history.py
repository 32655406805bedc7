"""The history of jobs, from ``lakecdc.audit``: applications, what ingestion applied, and the tasks of reports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query

from airflow_provider_lakecdc.audit import AuditRow, history
from airflow_provider_lakecdc.governance.costs import costs_of
from airflow_provider_lakecdc.observe.addresses import link
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from lakecdc.contract.errors import InputError
from lakecdc.metadata.names import AUDIT

_RUNS = 100
_DAYS_OF_COSTS = 30
# an application has a row for each table and step
_MOST_ROWS = 5000
#: an application with more rows is not opened in the history, its report has them
_MOST_OPENED, _MOST_ALARMING = 50, 5
#: outcomes that need attention, which an application shows without being opened
_ALARMING = ("failed", "conflict", "unsupported")
#: numbers that reports have before and after a job, in order of interest
_NUMBERS = (
    "score",
    "data_files",
    "delete_files",
    "equality_delete_files",
    "delete_read_cost",
    "overlap_depth",
    "manifests",
)
# maximum length in Airflow's database
Id = Annotated[str, Query(max_length=250)]
_Choice = Annotated[str, Query(max_length=1000)]


@dataclass(frozen=True)
class HistoryFilter:
    """Filters of the history; an empty one shows all rows.

    :param name: table, ``namespace.name``.
    :param day: day in UTC on which the job ended, such as ``2026-01-31``.
    """

    name: _Choice = ""
    job: _Choice = ""
    outcome: _Choice = ""
    day: _Choice = ""

    @property
    def where(self) -> dict[str, str]:
        return {column: value for column, value in {"job": self.job, "outcome": self.outcome}.items() if value}

    @property
    def begin(self) -> datetime | None:
        """Return the begin of the day.

        :raises InputError: it is not a date.
        """
        try:
            return datetime.strptime(self.day, "%Y-%m-%d").replace(tzinfo=UTC) if self.day else None
        except ValueError:
            raise InputError(f"Day {self.day!r} is not a date.", hint="Use YYYY-MM-DD, such as 2026-01-31.") from None


@dataclass(frozen=True)
class Intake:
    """Events that ingestion applied, rows that it wrote, messages that it quarantined, and its seconds."""

    events: int = 0
    rows_written: int = 0
    quarantined: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Intake:
        """Read the metrics of a table's report; those of jobs other than ingestion count nothing."""
        if "rows_per_second" not in metrics:
            return cls()
        events = sum(int(value) for name, value in metrics.items() if name.startswith("events_"))
        written, quarantined = metrics.get("rows_written", 0), metrics.get("quarantined", 0)
        return cls(events, int(written), int(quarantined), float(metrics.get("seconds", 0.0)))

    def __add__(self, other: Intake) -> Intake:
        return Intake(
            self.events + other.events,
            self.rows_written + other.rows_written,
            self.quarantined + other.quarantined,
            self.seconds + other.seconds,
        )

    @property
    def events_per_second(self) -> float | None:
        """Return the events in a second of work; None without work."""
        return self.events / self.seconds if self.seconds else None

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers that are not 0."""
        for name in ("events", "rows_written", "quarantined"):
            if value := getattr(self, name):
                yield {"name": name.replace("_", " "), "before": None, "after": value}


def runs_of(lake: Lake, chosen: HistoryFilter, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the history by application, newest first.

    :raises InputError: the table is hidden, or the day is not a date.
    """
    if chosen.name:
        lake.check_shown(chosen.name)
    catalog, most = lake.catalog, _RUNS if chosen.name else _MOST_ROWS
    begin = chosen.begin
    until = begin + timedelta(days=1) if begin else None

    def read() -> list[AuditRow]:
        return history(catalog, chosen.name or None, begin, most, until=until, where=chosen.where)

    # filters have any number of values, which would fill the cache
    is_plain = chosen == HistoryFilter(name=chosen.name)
    rows = heads.read(catalog, AUDIT, (lake.conn_id, chosen.name, most), read) if is_plain else read()
    by_application: dict[str, list[AuditRow]] = defaultdict(list)
    for row in rows:
        if lake.shows(row.table):
            by_application[row.application].append(row)
    runs = list(by_application.values())
    if len(rows) == most and len(runs) > 1:
        # the rest of the oldest one was not read
        del runs[-1]
    return {
        "runs": [_run(each) for each in runs[:_RUNS]],
        "filter": chosen,
        "is_cut": len(runs) > _RUNS or len(rows) == most,
        "changes": changes,
        "report_link": report_link,
        "choices": {
            "job": sorted({row.job for row in rows} | {chosen.job} - {""}),
            "outcome": ["done", "nothing", "skipped", "unsupported", "conflict", "failed"],
            "name": sorted({row.table for run in runs for row in run}),
        },
    }


def _run(rows: Sequence[AuditRow]) -> dict[str, Any]:
    """Return the template's values of one Spark application, from its rows: one for each table and step."""
    rows = sorted(rows, key=lambda row: int(row.row_id.rpartition("/")[2]))
    alarming = [row for row in rows if row.outcome in _ALARMING]
    is_openable = 1 < len(rows) <= _MOST_OPENED
    below = rows if is_openable else alarming[:_MOST_ALARMING]
    measured = [row.core_seconds for row in rows if row.core_seconds is not None]
    return {
        "rows": rows,
        "first": rows[0],
        "jobs": ", ".join(dict.fromkeys(row.job for row in rows)),
        "tables": len({row.table for row in rows}),
        "is_openable": is_openable,
        # visible without opening the application
        "alarming": alarming,
        "shown": below if len(rows) > 1 else (),
        "outcomes": Counter(row.outcome for row in rows),
        "core_seconds": sum(measured) if measured else None,
        "intake": sum((Intake.of(row.metrics) for row in rows), Intake()),
    }


def costs_of_lake(lake: Lake, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the costs of DAG runs and tables."""
    catalog, config = lake.catalog, lake.config
    prices, query_log = (config.prices, config.query_log) if config else (None, None)
    since = datetime.now(UTC) - timedelta(days=_DAYS_OF_COSTS)
    hidden = tuple(config.dag_id_prefix for config in lake.hidden)
    key = (lake.name, hidden, prices, query_log, since.date())
    costs = heads.read(catalog, AUDIT, key, lambda: costs_of(catalog, since, prices, query_log, lake.shows))
    return {"costs": costs, "most": _RUNS}


def changes(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the changed numbers in a job's metrics, each with its name, before and after the job, and its intake."""
    for name in _NUMBERS:
        before, after = metrics.get(f"{name}_before"), metrics.get(f"{name}_after")
        if before is not None and after is not None and before != after:
            yield {"name": name.replace("_", " "), "before": before, "after": after}
    yield from Intake.of(metrics).changes()


@dataclass(frozen=True)
class Task:
    """A task instance.

    :param map_index: -1 if the task is not mapped.
    :param try_number: None means the last try, from XCom; others are from the audit.
    """

    dag_id: Id
    run_id: Id
    task_id: Id
    map_index: int = -1
    try_number: int | None = None


def report_link(lake: str, row: AuditRow) -> str:
    """Return the address of the report of an audit row's try, in a lake with the row."""
    mapped = -1 if row.map_index is None else row.map_index
    return link("report", lake=lake, **vars(Task(row.dag_id, row.run_id, row.task_id, mapped, row.try_number)))
