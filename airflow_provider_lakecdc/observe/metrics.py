"""Metrics of jobs by table, sent through Airflow's metrics: StatsD, Datadog or OpenTelemetry.

Nothing is sent if Airflow's metrics are off, and errors never fail a task.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from airflow.sdk import Context
from airflow.sdk.observability import stats

from lakecdc.contract.options import OPTIONS
from lakecdc.contract.report import JobReport, TableReport
from lakecdc.contract.spec import FEEDING_JOBS, GOVERN, SOURCE_JOBS

log = logging.getLogger(__name__)

Kind = Literal["counter", "gauge", "timer"]
_INGEST = (
    *("rows_written", "bytes_written", "data_files", "delete_files", "commits", "retries", "quarantined"),
    *("suspects", "older_dropped", "rows_below_floor", "erased_rows_returned", "completions", "completion_lookups"),
    *("deletes_left_out", "history_rows", "core_seconds"),
)
_REWRITE = (
    *("data_files_removed", "data_files_added", "delete_files_removed", "bytes_read", "bytes_written", "rows"),
    "commits",
)
_REWRITE_DELETES = (
    *("positions", "equality_deletes", "data_files_touched", "delete_files_added", "deletion_vectors_added"),
    *("delete_files_superseded", "commits", "conflicts"),
)
_EXPIRED = (
    *("snapshots_expired", "deleted_data_files", "deleted_equality_delete_files"),
    *("deleted_position_delete_files", "deleted_manifests", "deleted_manifest_lists"),
)
_EXPIRED_ROWS = ("partitions_removed", "data_files_removed", "rows_removed", "bytes_removed")
_ORPHANS = tuple(f"{what}_{how}" for how in ("taken", "deleted", "restored", "spared") for what in ("files", "bytes"))
_CLEANED = ("quarantined_dismissed", "parked_rounds_removed", "remembered_deletes_removed", "files_read_removed")
_BESIDE = ("quarantined_after", "parked_rounds_after", "remembered_deletes_after", "files_read_after")
# of all maintenance jobs
_WORK = ("bytes_written", "core_seconds")
_STATE = (
    *("data_files_after", "delete_files_after", "bytes_after", "manifests_after", "overlap_depth_after"),
    *("lookup_files_after", "score_after"),
)
_UNEQUAL = (
    *("missing", "unexpected", "different", "duplicate", "in_flight", "undecided"),
    *("rows_source", "rows_table"),
)


def _by_job(shared: tuple[str, ...], own: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return metrics by job: its own, and those that all maintenance jobs share."""
    maintaining = [job for job in OPTIONS if job not in (*SOURCE_JOBS, GOVERN)]
    return own | {job: tuple(dict.fromkeys((*own.get(job, ()), *shared))) for job in maintaining}


_OWN_COUNTERS: dict[str, tuple[str, ...]] = {
    "ingest": _INGEST,
    "replay_quarantine": _INGEST,
    "rewrite_delete_files": _REWRITE_DELETES,
    "sort_data_files": _REWRITE,
    "compact_data_files": _REWRITE,
    "rebucket": _REWRITE,
    "expire_snapshots": _EXPIRED,
    "expire_partitions": _EXPIRED_ROWS,
    "remove_orphan_files": _ORPHANS,
    "clean_side_tables": _CLEANED,
    "rollback_tables": ("snapshots_undone",),
    "reconcile": ("repaired", "core_seconds"),
    "export_changes": ("rows_written", "files_written"),
    "check_tables": ("checks_passed", "checks_failed", "checks_warned"),
    "restore_moment": ("events_restored",),
    "scd2": ("events",),
    "rebuild_keys": ("groups",),
    "erase_rows": ("rows_erased", "files_rewritten", "snapshots_expired", "trash_deleted", "statistics_deleted"),
}
#: numbers of a report that add up over runs, by job
COUNTERS = _by_job(_WORK, _OWN_COUNTERS)
_FRESHNESS = ("freshness_promised_seconds", "freshness_late_seconds")
_OWN_GAUGES: dict[str, tuple[str, ...]] = {
    "ingest": _FRESHNESS,
    "replay_quarantine": _FRESHNESS,
    "rewrite_delete_files": ("equality_delete_files_after", "equality_delete_files_unsupported", "groups_left"),
    "sort_data_files": ("cold_files_left", "cold_bytes_left"),
    "compact_data_files": ("cold_files_left", "cold_bytes_left"),
    "rebucket": ("buckets_after",),
    "set_readers": ("delete_files_left",),
    "rewrite_manifests": ("delete_manifests_after",),
    "compute_statistics": ("rows",),
    "tag_snapshots": ("refs",),
    "expire_snapshots": ("snapshots",),
    "expire_partitions": ("partitions_left", "mixed_files"),
    "remove_orphan_files": ("files_listed", "bytes_listed", "orphan_files", "orphan_bytes", "files_waiting"),
    "clean_side_tables": _BESIDE,
    "reconcile": _UNEQUAL,
    "erase_rows": ("files_with_keys",),
}
#: numbers of a report that describe a table's state, by job
GAUGES = _by_job(_STATE, _OWN_GAUGES)
#: duration of the work on a table
DURATION = "duration"
#: number of processed tables, with any outcome
TABLES = "lakecdc.tables"


@dataclass(frozen=True)
class Measurement:
    """A metric's value, in milliseconds for a timer, with tags beyond the common ones."""

    kind: Kind
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)


def emit(context: Context, catalog_conn_id: str, report: JobReport) -> None:
    """Send the metrics of a report's tables."""
    try:
        for table in report.tables:
            common = {**context["ti"].stats_tags, "job": table.job or report.job, "catalog": catalog_conn_id}
            for measurement in measurements(report, table):
                _send(measurement, {**common, "table": table.table, **measurement.tags})
    except Exception:
        log.warning("Cannot send the metrics of the job.", exc_info=True)


def measurements(report: JobReport, table: TableReport) -> Iterator[Measurement]:
    """Yield a table's metrics under the name of its step; numbers missing in the report are skipped."""
    yield Measurement("counter", TABLES, 1, {"outcome": table.outcome})
    job = table.job or report.job
    prefix = f"lakecdc.{job}"
    for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
        for name in names.get(job, ()):
            if (value := _number(table.metrics.get(name))) is not None:
                yield Measurement(kind, f"{prefix}.{name}", value)  # type: ignore[arg-type]
    if seconds := _seconds(table):
        yield Measurement("timer", f"{prefix}.{DURATION}", seconds * 1000)
    if job in FEEDING_JOBS:
        yield from _of_feeding(prefix, report, table)


def _of_feeding(prefix: str, report: JobReport, table: TableReport) -> Iterator[Measurement]:
    numbers, seconds = table.metrics, _seconds(table)
    events = {name.removeprefix("events_"): int(n) for name, n in numbers.items() if name.startswith("events_")}
    for op, number in events.items():
        yield Measurement("counter", f"{prefix}.events", number, {"op": op})
    if seconds:
        yield Measurement("gauge", f"{prefix}.events_per_second", sum(events.values()) / seconds)
        yield Measurement("gauge", f"{prefix}.rows_per_second", numbers.get("rows_written", 0) / seconds)
    ended = datetime.fromisoformat(report.finished_at)
    if numbers.get("read_through"):
        source_time = datetime.fromisoformat(numbers["read_through"])
        yield Measurement("gauge", f"{prefix}.source_time", source_time.timestamp())
        yield Measurement("gauge", f"{prefix}.source_lag_seconds", max((ended - source_time).total_seconds(), 0.0))
    if numbers.get("commits"):
        yield Measurement("gauge", f"{prefix}.last_write", ended.timestamp())


def _seconds(table: TableReport) -> float:
    value = table.metrics.get("seconds")
    return _number(value.get("total") if isinstance(value, Mapping) else value) or 0.0


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _send(measurement: Measurement, tags: dict[str, Any]) -> None:
    if measurement.kind == "counter":
        # counters are whole numbers; fractions are rounded at random, so that many of them add up
        stats.incr(measurement.name, int(measurement.value + random.random()), tags=tags)
    elif measurement.kind == "gauge":
        stats.gauge(measurement.name, measurement.value, tags=tags)
    else:
        stats.timing(measurement.name, timedelta(milliseconds=measurement.value), tags=tags)
