"""Summaries of audit rows: unhealthy tables, costs, savings, orphan files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TypeVar

from airflow_provider_lakecdc.audit.lake_tables import AuditRow, HealthRow
from lakecdc.metadata.cost import saved_requests

R = TypeVar("R", AuditRow, HealthRow)
#: jobs that save readers files without removing rows
_SPARING = ("rewrite_delete_files", "sort_data_files", "compact_data_files", "rebucket")


@dataclass(frozen=True)
class Cost:
    """Resources that a job used on a table in a day (UTC).

    :param runs: applications that reached the table.
    :param failed: runs with outcome failed or conflict.
    :param predicted_core_seconds: of planned runs.
    """

    day: date
    table: str
    job: str
    runs: int
    failed: int
    core_seconds: float
    predicted_core_seconds: float
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Saving:
    """How much a job reduced the read cost of a table: values before minus values after, summed over its runs."""

    table: str
    job: str
    delete_read_cost: float
    delete_files: float
    data_files: float
    core_seconds: float


@dataclass(frozen=True)
class RunCost:
    """CPU time that the tasks of a DAG run have used.

    :param unmeasured: steps on tables whose CPU time is not known, such as ingestion and failed jobs.
    """

    dag_id: str
    run_id: str
    started_at: datetime
    finished_at: datetime
    tables: int
    core_seconds: float
    unmeasured: int


@dataclass(frozen=True)
class TableCost:
    """CPU time that jobs have used on a table, and the savings of its readers.

    :param unmeasured: steps whose CPU time is not known.
    :param files_spared: files fewer that a scan of the whole table opened after jobs than before, summed over the jobs;
        measured where a job changed a table of at most 10,000 live files. Delete files count once per data file.
    :param reads_per_day: of the table, from the query log; None without one.
    :param requests_spared: estimated, see :func:`lakecdc.metadata.cost.saved_requests`; None without a query log.
    """

    table: str
    core_seconds: float
    unmeasured: int
    files_spared: float
    reads_per_day: float | None
    requests_spared: float | None


@dataclass(frozen=True)
class Orphans:
    """Unreferenced files that the last run of ``remove_orphan_files`` left; files orphaned since are not counted."""

    table: str
    files: int
    bytes: int
    found_at: datetime


def hurting(rows: Iterable[HealthRow]) -> list[HealthRow]:
    """Return the latest row of each table, lowest score first."""
    return sorted(_latest(rows, lambda row: row.measured_at), key=lambda row: (row.score, row.table))


def costs(rows: Iterable[AuditRow]) -> list[Cost]:
    """Return costs by day, table and job, the latest day and the highest cost first."""
    groups: dict[tuple[date, str, str], list[AuditRow]] = defaultdict(list)
    for row in rows:
        groups[row.finished_at.astimezone(UTC).date(), row.table, row.job].append(row)
    summed = [
        Cost(
            *key,
            runs=len(each),
            failed=sum(row.outcome in ("failed", "conflict") for row in each),
            core_seconds=_core_seconds(each),
            predicted_core_seconds=round(sum(row.predicted_core_seconds or 0 for row in each), 3),
            bytes_read=sum(row.bytes_read or 0 for row in each),
            bytes_written=sum(row.bytes_written or 0 for row in each),
        )
        for key, each in groups.items()
    ]
    return sorted(summed, key=lambda cost: (-cost.day.toordinal(), -cost.core_seconds, cost.table, cost.job))


def run_costs(rows: Iterable[AuditRow]) -> list[RunCost]:
    """Return the costs of DAG runs, the latest first."""
    groups: dict[tuple[str, str], list[AuditRow]] = defaultdict(list)
    for row in rows:
        groups[row.dag_id, row.run_id].append(row)
    summed = [
        RunCost(
            *key,
            started_at=min(row.started_at for row in each),
            finished_at=max(row.finished_at for row in each),
            tables=len({row.table for row in each}),
            core_seconds=_core_seconds(each),
            unmeasured=_unmeasured(each),
        )
        for key, each in groups.items()
    ]
    return sorted(summed, key=lambda run: run.finished_at, reverse=True)


def table_costs(rows: Iterable[AuditRow], reads_per_day: Mapping[str, float], now: datetime) -> list[TableCost]:
    """Return the costs of tables, the highest first; reads are empty if they are not known."""
    groups: dict[str, list[AuditRow]] = defaultdict(list)
    for row in rows:
        groups[row.table].append(row)
    summed = []
    for table, each in groups.items():
        spared = [(row.finished_at, _files_spared(row)) for row in each]
        reads = reads_per_day.get(table, 0.0) if reads_per_day else None
        requests = None if reads is None else round(saved_requests(spared, reads, now))
        files = sum(count for _, count in spared)
        summed.append(TableCost(table, _core_seconds(each), _unmeasured(each), files, reads, requests))
    return sorted(summed, key=lambda cost: (-cost.core_seconds, cost.table))


def _core_seconds(rows: Iterable[AuditRow]) -> float:
    return round(sum(row.core_seconds or 0 for row in rows), 3)


def _unmeasured(rows: Iterable[AuditRow]) -> int:
    return sum(row.core_seconds is None for row in rows)


def _files_spared(row: AuditRow) -> float:
    """Return how many files fewer a scan of the whole table opened after a job that keeps all rows."""
    if row.job not in _SPARING or row.outcome != "done" or row.is_dry_run:
        return 0.0
    return _saved([row], "data_files") + _saved([row], "delete_file_reads")


def orphans(rows: Iterable[AuditRow]) -> list[Orphans]:
    """Return the remaining orphan files of each table by its latest search, most bytes first."""
    searches = (row for row in rows if "orphan_files" in row.metrics)
    remaining = [
        Orphans(
            row.table,
            row.metrics["orphan_files"] - row.metrics.get("files_taken", 0),
            row.metrics["orphan_bytes"] - row.metrics.get("bytes_taken", 0),
            row.finished_at,
        )
        for row in _latest(searches, lambda row: row.finished_at)
    ]
    return sorted((each for each in remaining if each.files > 0), key=lambda each: (-each.bytes, each.table))


def savings(rows: Iterable[AuditRow]) -> list[Saving]:
    """Return savings by table and job, largest first; only runs that changed the table count."""
    groups: dict[Hashable, list[AuditRow]] = defaultdict(list)
    for row in rows:
        if row.outcome == "done" and not row.is_dry_run:
            groups[row.table, row.job].append(row)
    summed = [
        Saving(
            each[0].table,
            each[0].job,
            delete_read_cost=_saved(each, "delete_read_cost"),
            delete_files=_saved(each, "delete_files"),
            data_files=_saved(each, "data_files"),
            core_seconds=_core_seconds(each),
        )
        for each in groups.values()
    ]
    return sorted(summed, key=lambda s: (-s.delete_read_cost, -s.delete_files, -s.data_files, s.table, s.job))


def _saved(rows: Iterable[AuditRow], number: str) -> float:
    pairs = [(row.metrics.get(f"{number}_before"), row.metrics.get(f"{number}_after")) for row in rows]
    return round(sum(before - after for before, after in pairs if before is not None and after is not None), 3)


def _latest(rows: Iterable[R], moment: Callable[[R], datetime]) -> Collection[R]:
    latest: dict[str, R] = {}
    for row in rows:
        if row.table not in latest or moment(latest[row.table]) < moment(row):
            latest[row.table] = row
    return latest.values()
