"""Assess one table through pyiceberg."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.audit.reading import LATELY, latest_health
from airflow_provider_lakecdc.governance.assessment import Assessed, Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection
from airflow_provider_lakecdc.lake.assess_table import Idle, OpenTable, Undecided, assess_job
from airflow_provider_lakecdc.lake.tables import is_fed, is_kept_fresh, source_position
from airflow_provider_lakecdc.submit.failures import one_line
from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.protection import Protection
from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.metadata import names
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.freshness import judge_table
from lakecdc.metadata.health import REGAINED_BY
from lakecdc.metadata.last_write import describe_writes
from lakecdc.metadata.plan import Action, Skipped
from lakecdc.metadata.policy import NOTHING, Governed, combine_policies, inherit_policy, matching, tighten
from lakecdc.metadata.work import Work

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)
#: seconds that work may wait, unless a policy sets a limit
MAX_WAIT = 7 * 24 * 3600.0
_SORT = "sort_data_files"
_EVERY_RUN = "runs regardless of the budget"
#: jobs that may wait; the others do not speed up readers, and their guarantees have deadlines
_POSTPONABLE = ("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests")


@dataclass(frozen=True)
class MainTables:
    """The main table or tables of a side table.

    :param table: the first of them.
    :param governed: the policy that holds for all of them.
    :param others: all their names, whose properties a job reads again; empty if unknown.
    """

    table: str
    governed: Governed
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A table to assess; a side table with its main tables and jobs."""

    table: str
    main: MainTables | None = None
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    assessed: Assessed
    governed: Governed
    actions: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Scope:
    """Settings of an assessment that apply to all of its tables.

    :param moment: now, in the time zone of the policies' windows.
    :param reads: read frequency by table, with mean 1; empty if unknown.
    """

    selection: TableSelection
    steps: Steps
    moment: datetime
    is_dry: bool = False
    reads: Mapping[str, float] = field(default_factory=dict)

    def is_named(self, candidate: Candidate) -> bool:
        """Check whether the configuration names a table or its main table."""
        return candidate.main is not None or candidate.table in self.selection.named

    def governed(self, candidate: Candidate, table: Table) -> Governed:
        """Return the policy of a loaded table.

        Tables that ingestion feeds are recognized by the positions in their snapshots, not by a property: anyone who
        may alter a table can set one, and copies of a table inherit it.
        """
        is_named = self.is_named(candidate) or (bool(matching(self.selection.fed, [candidate.table])) and is_fed(table))
        own = tighten(self._inherited(candidate, is_named=is_named), candidate.table, table.properties)
        return own if candidate.main is None else combine_policies(candidate.main.governed, own)

    def governed_unreadable(self, candidate: Candidate, error: Exception) -> Governed:
        """Return the policy of a table that cannot be loaded, or whose properties are invalid."""
        known = self._inherited(candidate, is_named=True)
        if isinstance(error, SpecError) or not self.is_named(candidate):
            return replace(NOTHING, owner=known.owner)
        return (known if candidate.main is None else combine_policies(candidate.main.governed, known)).keeping()

    def _inherited(self, candidate: Candidate, *, is_named: bool) -> Governed:
        return inherit_policy(self.selection.policies, candidate.table, is_named=is_named)

    def options(self, candidate: Candidate, governed: Governed) -> dict[str, dict[str, Any]]:
        """Return the allowed jobs of a table with their options."""
        jobs = self.steps.for_table(candidate.table)
        if candidate.main is not None:
            jobs = {job: options for job, options in jobs.items() if job in candidate.jobs}
        dry = {"dry_run": True} if self.is_dry else {}
        return {
            job: {**governed.options(job, options, self.moment), **dry}
            for job, options in jobs.items()
            if job in governed.jobs or (job in self.steps.own and not governed.forbids(job))
        }

    def reads_of(self, candidate: Candidate, governed: Governed) -> float:
        """Return a table's read frequency: from its policy, else from the query log, else 1."""
        if governed.reads is not None:
            return governed.reads
        # side tables are read by ingestion, which no query log records
        return self.reads.get(candidate.table, 0.0) if self.reads and candidate.main is None else 1.0

    def own_options(self, job: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a job that differ from those of all tables."""
        given = self.steps.options[job]
        return {name: value for name, value in options.items() if name not in given or value != given[name]}


def assess_loaded(table: Table, scope: Scope, candidate: Candidate) -> Result:
    governed = scope.governed(candidate, table)
    options = scope.options(candidate, governed)
    typed: dict[str, Any] = {job: OPTIONS[job](**given) for job, given in options.items()}
    opened = OpenTable(table, order=typed.get(_SORT, SortDataFilesOptions()))
    verdicts = {job: assess_job(opened, job, typed[job]) for job in options}
    idle = {job: verdict.reason for job, verdict in verdicts.items() if isinstance(verdict, Idle)}
    needed = {job: verdict for job, verdict in verdicts.items() if not isinstance(verdict, Idle)}
    position = source_position(table)
    source_time = position.read_through if position else None
    freshness = judge_table(
        scope.selection.promises, candidate.table, source_time, scope.moment, is_fed=is_kept_fresh(table)
    )
    health = _health(opened, scope.moment, freshness.facts() if freshness else {})
    assessed = replace(_assessed(candidate, governed), **health, idle=idle, freshness=freshness)
    reads, zone = scope.reads_of(candidate, governed), scope.selection.zone
    pressing = _pressing(assessed.health, needed, governed.min_score)
    window = Protection(windows=governed.windows, zone=zone).closed_at(scope.moment)
    if window is not None:
        reason = f"jobs may run on it only from {window.begins} to {window.ends}"
        return Result(assessed, governed, skipped=tuple(Skipped(candidate.table, job, reason) for job in needed))
    beside = candidate.main.others if candidate.main else ()
    return Result(
        assessed,
        governed,
        tuple(
            replace(
                _action(candidate.table, job, verdict, reads, _longer_retention(job, typed[job], governed)),
                due=pressing.get(job) or _due(opened, job, verdict, governed, scope.moment),
                options=scope.own_options(job, options[job]),
                approve=_needs_approval(job, typed[job], governed),
                protection=governed.protection(job, zone, beside),
            )
            for job, verdict in needed.items()
        ),
    )


def _needs_approval(job: str, options: JobOptions, governed: Governed) -> bool:
    """Check whether a removal by a job needs approval; dry runs and runs with a list of approved items do not."""
    return job in governed.approve and not options.dry_run and getattr(options, "approved", None) is None


def _assessed(candidate: Candidate, governed: Governed) -> Assessed:
    beside = candidate.main.table if candidate.main else None
    return Assessed(
        candidate.table, beside, governed.owner, tuple(sorted(governed.jobs)), tuple(sorted(governed.approve))
    )


def _health(opened: OpenTable, now: datetime, freshness: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known health of a table, as fields of :class:`Assessed`."""
    if opened.head is None:
        return {}
    if opened.is_small:
        facts: Mapping[str, Any] = opened.health.facts()
        measured_at = None
    else:
        name = ".".join(opened.table.name())
        try:
            row = latest_health(opened.table.catalog, name, now - LATELY)
        except Exception:
            # no job depends on it
            log.warning("Cannot read the health of %s as measured by jobs.", name, exc_info=True)
            row = None
        if row is None:
            return {}
        facts, measured_at = row.as_facts(), iso(int(row.measured_at.timestamp() * 1000))
    moments = describe_writes(opened.snapshots, opened.table.properties, now)
    return {"health": {**facts, **moments, **freshness}, "measured_at": measured_at}


def _action(table: str, job: str, verdict: Work | Undecided, reads: float, remark: str) -> Action:
    """Create the action for a job's work; the remark is appended to the reason."""
    if isinstance(verdict, Undecided):
        return Action(table, job, verdict.reason + remark)
    benefit = round(verdict.benefit * reads, 2)
    return Action(
        table, job, verdict.reason + remark, benefit, verdict.core_seconds, verdict.core_seconds, verdict.bytes
    )


def _longer_retention(job: str, options: Any, governed: Governed) -> str:
    """Return a remark if the table's own policy has a longer retention than the configuration."""
    retention = governed.kept_for(job)
    if retention and options.max_age == retention:
        return f"; the table's own policy keeps what is younger than {retention:g} s"
    return ""


def _due(opened: OpenTable, job: str, verdict: Work | Undecided, governed: Governed, now: datetime) -> str | None:
    """Return why work cannot wait any longer, or None if it can.

    Work waits since the job's last commit to the table, else since the table's oldest snapshot.
    """
    if job not in _POSTPONABLE or isinstance(verdict, Undecided):
        return _EVERY_RUN
    limit = MAX_WAIT if governed.max_wait is None else governed.max_wait
    last = next((each for each in opened.snapshots if each.summary.get(names.JOB) == job), opened.snapshots[-1])
    waited = now.timestamp() - last.timestamp_ms / 1000
    return f"waiting for {waited / 3600:.0f} hours, limit {limit / 3600:g}" if waited > limit else None


def _pressing(health: Mapping[str, Any] | None, jobs: Collection[str], least: float | None) -> dict[str, str]:
    """Return the job that improves a too low score most, with the reason; empty if the score is high enough."""
    if health is None or least is None or health["score"] >= least:
        return {}
    gains = {job: health["lost"].get(reason, 0.0) for reason, job in REGAINED_BY.items() if job in jobs}
    job = max(gains, key=gains.__getitem__, default=None)
    if job is None or not gains[job]:
        return {}
    return {job: f"score {health['score']:g} is below {least:g}; the job regains {gains[job]:g} points"}


def plan_unreadable(scope: Scope, candidate: Candidate, error: Exception) -> Result:
    """Plan for a table that cannot be read: no removals, and other jobs only if the table is named."""
    message = one_line(error).removeprefix(f"{candidate.table}: ")
    governed = scope.governed_unreadable(candidate, error)
    assessed = replace(_assessed(candidate, governed), error=message)
    options = scope.options(candidate, governed) if governed.jobs else {}
    actions = tuple(
        Action(
            candidate.table,
            job,
            f"cannot assess it: {message}",
            due=_EVERY_RUN,
            options=scope.own_options(job, o),
            approve=_needs_approval(job, OPTIONS[job](**o), governed),
            protection=governed.protection(job, scope.selection.zone),
        )
        for job, o in options.items()
    )
    return Result(assessed, governed, actions)
