"""Check tables and sources before Spark is started, and report tables that need nothing without it.

What :mod:`airflow_provider_lakecdc.lake.assess_table` cannot decide for certain is left to the job. Spark is not
started either if a job's source is down or has nothing new; a program that may import the source's client queries it
(``lakecdc.probes.preflight``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.exceptions import CLASSES
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.assess_table import ASSESSORS, Idle, OpenTable, assess_job
from airflow_provider_lakecdc.lake.tables import (
    MAIN,
    open_table,
    read_positions,
    read_tables,
    record_idle_position,
    summary_of,
)
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.failures import one_line
from airflow_provider_lakecdc.submit.submission import Submission
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.contract.spec import RECONCILE, JobSpec
from lakecdc.contract.target import Target
from lakecdc.metadata import totals
from lakecdc.metadata.freshness import judge_freshness
from lakecdc.metadata.names import parked_of
from lakecdc.metadata.positions import Position
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

# a replay reads the quarantine
_JOBS = ("ingest", RECONCILE)
_THREADS = 4
_HINTS = {
    "bad input": "Spark was not started. Fix this, then clear the task.",
    "cluster": "Spark was not started. A retry helps once the source can be reached.",
}


@dataclass(frozen=True)
class Precheck:
    """Reports of the tables that need nothing of a job, and the other tables; both are empty without a check."""

    idle: tuple[TableReport, ...] = ()
    left: frozenset[str] = frozenset()

    @property
    def is_all_idle(self) -> bool:
        """Return whether no table is left to the job."""
        return bool(self.idle) and not self.left


def precheck_tables(catalog: CatalogConnection, spec: JobSpec) -> Precheck:
    """Separate the tables of a job that need nothing from all others.

    A side table that does not exist is in neither. A table that cannot be read is left to the job.
    """
    named = list(dict.fromkeys((*spec.tables, *getattr(spec.options, "side_tables", ()))))
    if spec.job not in ASSESSORS or spec.options.dry_run:
        return Precheck()

    def read(name: str, table: Table | None) -> Precheck:
        if table is None and name not in spec.tables:
            return Precheck()
        report = _idle_report(table, name, spec) if table is not None else None
        return Precheck((report,)) if report else Precheck(left=frozenset({name}))

    checked = read_tables(catalog, named, read, lambda name, _: Precheck(left=frozenset({name}))).values()
    idle = tuple(report for each in checked for report in each.idle)
    return Precheck(idle, frozenset(name for each in checked for name in each.left))


def _idle_report(table: Table, name: str, spec: JobSpec) -> TableReport | None:
    """Return the report of a table that needs nothing; None if it is left to the job."""
    branch = getattr(spec.options, "branch", MAIN)
    order = spec.options if isinstance(spec.options, SortDataFilesOptions) else SortDataFilesOptions()
    opened = OpenTable(table, branch, order)
    verdict = assess_job(opened, spec.job, spec.options)
    if not isinstance(verdict, Idle):
        return None
    if opened.head is None:
        return TableReport(name, "nothing", verdict.reason)
    numbers = totals.from_summary(summary_of(opened.head)).numbers()
    same = {f"{number}_{moment}": value for moment in ("before", "after") for number, value in numbers.items()}
    at = str(opened.head.snapshot_id)
    return TableReport(name, "nothing", verdict.reason, None, at, at, {**verdict.metrics, "core_seconds": 0.0, **same})


def precheck_source(
    catalog: CatalogConnection, job: Submission, environment: Mapping[str, str], *, may_skip: bool
) -> Precheck:
    """Check whether a run can read a job's source, and whether it has anything new.

    If it has not, every table's position is recorded here, so that its watermark advances without Spark.

    :param environment: of the job's driver, which runs on this machine.
    :param may_skip: whether the job may be skipped if there is nothing new.
    :return: reports of all tables, or of none.
    :raises LakecdcJobError: no run can read the source; as one of its subclasses.
    """
    if job.spec.job not in _JOBS:
        return Precheck()
    positions = _positions(catalog, job.spec) if may_skip else None
    state = _ask(job, environment, positions)
    if state.refusal is not None:
        failure = CLASSES[state.failure_class or "unknown"]
        raise failure(f"The source cannot be read: {state.refusal}", hint=_HINTS.get(failure.failure_class))
    if not state.idle or not positions:
        return Precheck()
    try:
        return _record_all(catalog, job.spec, positions, state)
    except Exception as error:
        log.warning("The source has nothing new, but this worker cannot record that: %s", one_line(error))
        return Precheck()


def _record_all(
    catalog: CatalogConnection, spec: JobSpec, positions: Mapping[str, Position], state: SourceState
) -> Precheck:
    """Record and report that the source has nothing new; report nothing if a table has other work to do."""
    assert state.idle is not None
    if any(_has_parked(catalog, name) for name in {parked_of(table) for table in spec.tables}):
        return Precheck()
    record = partial(_record, catalog, positions, state.idle)
    with ThreadPoolExecutor(_THREADS) as pool:
        heads = dict(zip(spec.tables, pool.map(record, spec.tables), strict=True))
    if not all(heads.values()):
        return Precheck()
    idle = state.idle
    return Precheck(tuple(_report(each, heads[each.table], idle[each.table], state.facts) for each in spec.targets))


def _record(
    catalog: CatalogConnection, before: Mapping[str, Position], after: Mapping[str, Position], table: str
) -> str | None:
    """Record an idle position; return the id of the table's head, or None if another run has moved the table."""
    if not record_idle_position(catalog, table, before[table], after[table]):
        return None
    with open_table(catalog, table) as loaded:
        head = loaded.current_snapshot() if loaded is not None else None
        return str(head.snapshot_id) if head else None


def _report(target: Target, head: str | None, position: Position, facts: Mapping[str, Any]) -> TableReport:
    metrics = {**facts, "commits": 0, "position": position.offsets, "read_through": position.read_through}
    reason = "the source has no changes for it"
    if target.freshness is not None:
        freshness = judge_freshness(target.freshness, position.read_through, datetime.now(UTC))
        metrics |= freshness.facts()
        reason = "; ".join(filter(None, (reason, freshness.problem)))
    return TableReport(target.table, "nothing", reason, None, head, head, metrics)


def _has_parked(catalog: CatalogConnection, name: str) -> bool:
    """Check whether parked rounds of a log wait for a table."""
    with open_table(catalog, name) as loaded:
        head = loaded.current_snapshot() if loaded is not None else None
        return head is not None and summary_of(head).get("total-records") != "0"


def _ask(job: Submission, environment: Mapping[str, str], positions: Mapping[str, Position] | None) -> SourceState:
    encoded = None if positions is None else {table: position.encode() for table, position in positions.items()}
    question = json.dumps({"spec": job.document, "positions": encoded})
    done = launcher.run_probe("lakecdc.probes.preflight", question, environment)
    if done is None or done.returncode:
        log.warning("Cannot check the source from here; Spark will check it.")
        return SourceState()
    return SourceState.from_json(done.stdout)


def _positions(catalog: CatalogConnection, spec: JobSpec) -> dict[str, Position] | None:
    """Return the positions of targets that were fed; None if they are not known."""
    if spec.job == RECONCILE or any(target.is_pattern for target in spec.targets):
        return None
    try:
        return read_positions(catalog, {target.table: target.feed for target in spec.targets})
    except Exception as error:
        log.warning("Cannot read the positions of tables from this worker: %s", one_line(error))
        return None
