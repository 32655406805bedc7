"""What tables need, what may be done to them, and how healthy they are: one look at each through pyiceberg."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow_provider_lakecdc.audit.reading import LATELY, latest_health
from airflow_provider_lakecdc.governance.discovery import Wanted, find
from airflow_provider_lakecdc.lake.assess_table import Idle, OpenTable, Untold, look_at
from airflow_provider_lakecdc.lake.tables import is_fed
from airflow_provider_lakecdc.submit.failures import one_line
from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError
from lakecdc.contract.options import OPTIONS, JobOptions, SortDataFilesOptions
from lakecdc.contract.protection import Protection
from lakecdc.metadata import names
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.health import REGAINED_BY
from lakecdc.metadata.last_write import standing
from lakecdc.metadata.plan import Action, Skipped
from lakecdc.metadata.policy import EVERYTHING, NOTHING, Governed, inherited, matching, tightened, tighter
from lakecdc.metadata.work import Work

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.audit import HealthRow
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)

#: seconds for which work may be put off, unless a policy says
MAX_WAIT = 7 * 24 * 3600.0
_THREADS = 4
_SORT = "sort_data_files"
_EVERY_RUN = "it is done whatever it costs"
#: jobs that may be put off; of the others nobody reads faster, and what they promise cannot wait
_AT_LEISURE = ("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests")
_CLEAN = "clean_side_tables"


@dataclass(frozen=True)
class Steps:
    """The jobs that tables may need.

    :param options: of each job, in the order of work, as all tables have them.
    :param beside: jobs that tables beside the others need too, each with further ones of these.
    :param own: tables that a job is for alone, with the options that each has; all other jobs are for all tables.
    """

    options: Mapping[str, Mapping[str, Any]]
    beside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def for_table(self, table: str) -> dict[str, dict[str, Any]]:
        """Jobs that are for a table, with their options."""
        return {
            job: {**options, **self.own.get(job, {}).get(table, {})}
            for job, options in self.options.items()
            if job not in self.own or table in self.own[job]
        }


@dataclass(frozen=True)
class Assessed:
    """One table.

    :param table: ``namespace.name``.
    :param beside: the table that it stands beside; None if it stands for itself.
    :param owner: whom to ask.
    :param jobs: that may be done to it.
    :param approve: those that wait for a person.
    :param health: facts of its health; None if nobody could look, or no job has yet measured what a worker does not.
    :param measured_at: ISO-8601 moment at which a job has measured it; None if it is as it was found.
    :param idle: jobs that it needs not, with the reason.
    :param error: why nobody could look.
    :param is_absent: the catalog has no such table, so that nothing can be done to it.
    """

    table: str
    beside: str | None = None
    owner: str | None = None
    jobs: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    health: dict[str, Any] | None = None
    measured_at: str | None = None
    idle: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    is_absent: bool = False


@dataclass(frozen=True)
class Assessment:
    """Tables, what could be done to them, and what could not, for other reasons than that they need nothing.

    :param measured_at: ISO-8601 moment.
    """

    measured_at: str
    tables: tuple[Assessed, ...] = ()
    actions: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def to_json(self) -> str:
        """The document that the next task reads."""
        return json.dumps(asdict(self), default=str, allow_nan=False)

    @property
    def unseen(self) -> dict[str, str]:
        """Why a table that is there could not be looked at, by table, but for those beside one that could not be."""
        errors = {each.table: each.error for each in self.tables if each.error}
        beside = {each.table: each.beside for each in self.tables}
        return {table: error for table, error in errors.items() if beside[table] not in errors}


def parse_assessment(document: Mapping[str, Any]) -> Assessment:
    """Read an assessment back.

    :raises SpecError: it is none.
    """
    return fields.parse(Assessment, document, "assessment")


@dataclass(frozen=True)
class _Owner:
    """The table that another stands beside.

    :param table: the first one, where it stands beside several.
    :param governed: what holds for all of them.
    :param others: names of all of them, whose properties a job reads again; none if nobody knows them.
    """

    table: str
    governed: Governed
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Asked:
    """A table that is to be looked at.

    :param owner: the table that it stands beside; None if it stands for itself.
    :param jobs: that are for it, if it stands beside another.
    """

    table: str
    owner: _Owner | None = None
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Answer:
    assessed: Assessed
    governed: Governed
    actions: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class _Question:
    """What is asked of every table.

    :param moment: now, in the zone of the windows of policies.
    :param is_dry: no job changes anything, whatever policies prefer.
    :param reads: how often each table is read, their mean being 1; nothing if nobody tells.
    """

    wanted: Wanted
    steps: Steps
    moment: datetime
    is_dry: bool = False
    reads: Mapping[str, float] = field(default_factory=dict)

    def is_named(self, asked: _Asked) -> bool:
        """Tell whether the configuration names a table, or one that it stands beside."""
        return asked.owner is not None or asked.table in self.wanted.named

    def governed(self, asked: _Asked, table: Table) -> Governed:
        """Return what holds for a table that was loaded.

        That ingestion feeds a table of a pattern is told by its snapshots, which ingestion alone commits with a
        position, and by no property: whoever may alter a table may set one, and copies of a table have the same.
        """
        is_named = self.is_named(asked) or (bool(matching(self.wanted.fed, [asked.table])) and is_fed(table))
        own = tightened(self._inherited(asked, is_named=is_named), asked.table, table.properties)
        return own if asked.owner is None else tighter(asked.owner.governed, own)

    def governed_unseen(self, asked: _Asked, error: Exception) -> Governed:
        """Return what holds for a table that could not be loaded, or whose properties cannot be read."""
        known = self._inherited(asked, is_named=True)
        if isinstance(error, SpecError) or not self.is_named(asked):
            return replace(NOTHING, owner=known.owner)
        return (known if asked.owner is None else tighter(asked.owner.governed, known)).keeping()

    def _inherited(self, asked: _Asked, *, is_named: bool) -> Governed:
        return inherited(self.wanted.policies, asked.table, is_named=is_named)

    def options(self, asked: _Asked, governed: Governed) -> dict[str, dict[str, Any]]:
        """Options of the jobs that are for a table and may be done to it."""
        found = self.steps.for_table(asked.table)
        if asked.owner is not None:
            found = {job: options for job, options in found.items() if job in asked.jobs}
        dry = {"dry_run": True} if self.is_dry else {}
        return {
            job: {**governed.options(job, options, self.moment), **dry}
            for job, options in found.items()
            if job in governed.jobs or (job in self.steps.own and not governed.forbids(job))
        }

    def reads_of(self, asked: _Asked, governed: Governed) -> float:
        """How often a table is read: what a policy says, then what the query log tells, else it is as any other."""
        if governed.reads is not None:
            return governed.reads
        # those beside others are read by ingestion, which no query log tells of
        return self.reads.get(asked.table, 0.0) if self.reads and asked.owner is None else 1.0

    def own_options(self, job: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a job's options that not all tables have."""
        given = self.steps.options[job]
        return {name: value for name, value in options.items() if name not in given or value != given[name]}


def assess(
    catalog: CatalogConnection,
    wanted: Wanted,
    steps: Steps,
    *,
    history: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    is_dry: bool = False,
) -> Assessment:
    """Look at tables, and at those that stand beside them.

    Nothing is removed from a table that cannot be looked at, as nobody knows what its properties forbid. What else it
    may need is left to the jobs if it is named; it is left alone if only a pattern has found it.

    :param history: history table by target.
    :param only: work on these of the tables alone, and on those beside them; empty is all of them.
    :param is_dry: no job is to change anything, whatever policies prefer.
    """
    moment = datetime.now(UTC)
    tables = find(catalog, wanted)
    question = _Question(
        wanted, steps, moment.astimezone(ZoneInfo(wanted.zone)), is_dry, _reads(catalog, wanted, tables.tables, moment)
    )
    asked = [_Asked(name) for name in tables.tables if not only or name in only]
    found = _side_by_side(catalog, question, asked)
    beside = _beside(found, steps, history or {}, with_shared=not only)
    if tables.there is not None:
        beside = [each for each in beside if each.table in tables.there]
    found += _side_by_side(catalog, question, beside)
    if steps.beside and not only:
        found = _without_cleaning(
            found, {name for more in steps.beside.values() for name in more if not names.is_lake_table(name)}
        )
    return Assessment(
        moment.isoformat(timespec="milliseconds"),
        tuple(each.assessed for each in found),
        tuple(action for each in found for action in each.actions),
        tuple(skipped for each in found for skipped in each.skipped),
    )


def _reads(catalog: CatalogConnection, wanted: Wanted, tables: Sequence[str], moment: datetime) -> dict[str, float]:
    """How often tables are read, as the query log tells."""
    if wanted.query_log is None:
        return {}
    try:
        with closing(catalog.load()) as opened:
            return wanted.query_log.reads(opened, tables, moment)
    except Exception:
        # which work is worth most is worth less than the work
        log.warning("%s does not tell how often tables are read.", wanted.query_log.table, exc_info=True)
        return {}


def _side_by_side(catalog: CatalogConnection, question: _Question, asked: Sequence[_Asked]) -> list[_Answer]:
    """Look in several threads; clients of some catalogs are not for several of them, so that each has its own."""
    parts = [part for number in range(_THREADS) if (part := asked[number::_THREADS])]
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = pool.map(partial(_answers, catalog, question), parts)
        found = {each.assessed.table: each for part in answers for each in part}
    return [found[each.table] for each in asked if each.table in found]


def _beside(answers: Sequence[_Answer], steps: Steps, history: Mapping[str, str], *, with_shared: bool) -> list[_Asked]:
    """List the tables that ingestion may keep beside others, each with those that it stands beside.

    :param with_shared: also those that the configuration names, of which nobody knows what they stand beside.
    """
    owners: dict[str, list[_Answer]] = {}
    for each in answers:
        if not (each.governed.jobs or each.assessed.error):
            continue
        own = [history[each.assessed.table]] if each.assessed.table in history else []
        for name in (*names.side_tables(each.assessed.table), *own):
            owners.setdefault(name, []).append(each)
    every = frozenset(steps.beside)
    asked = {name: _Asked(name, _owner(of), every) for name, of in owners.items() if any(a.governed.jobs for a in of)}
    # nothing removes from one that could not be looked at, which says nothing of these
    seen_first = sorted(answers, key=lambda each: bool(each.assessed.error))
    first = next((each for each in seen_first if each.governed.jobs), None)
    if with_shared and first is not None:
        held = first.governed
        stand_in = Governed(held.jobs, team_jobs=held.team_jobs, approve=held.approve, owner=held.owner)
        for name in dict.fromkeys(name for more in steps.beside.values() for name in more):
            jobs = frozenset(job for job, more in steps.beside.items() if name in more)
            asked.setdefault(name, _Asked(name, _Owner(first.assessed.table, stand_in), jobs))
    known = {each.assessed.table for each in answers}
    return [each for name, each in asked.items() if name not in known and each.jobs]


def _owner(answers: Sequence[_Answer]) -> _Owner:
    """Return the tables that one stands beside as one, the tightest of their policies holding for it."""
    # one that could not be looked at may be worked on by nobody, and what it shares with others loses nothing
    governed = reduce(tighter, (each.governed if each.governed.jobs else EVERYTHING.keeping() for each in answers))
    # options and priorities of a table are not those of what stands beside it
    governed = replace(governed, own_options={}, reads=None, max_wait=None, min_score=None)
    tables = tuple(each.assessed.table for each in answers)
    return _Owner(tables[0], governed, tables)


def _without_cleaning(found: Sequence[_Answer], shared: Collection[str]) -> list[_Answer]:
    """Leave ``clean_side_tables`` out for tables that have none beside them.

    :param found: all of them, those beside others included.
    :param shared: tables that may stand beside any.
    """
    there = {each.assessed.table for each in found if each.assessed.beside}
    return [
        each if there & {*names.side_tables(each.assessed.table), *shared} else _without(each, _CLEAN) for each in found
    ]


def _without(answer: _Answer, job: str) -> _Answer:
    actions = tuple(action for action in answer.actions if action.job != job)
    return replace(answer, actions=actions, skipped=tuple(each for each in answer.skipped if each.job != job))


def _answers(catalog: CatalogConnection, question: _Question, asked: Sequence[_Asked]) -> list[_Answer]:
    found: dict[str, _Answer | None] = {}
    try:
        with closing(catalog.load()) as opened:
            for each in asked:
                found[each.table] = _answer(opened, question, each)
    except Exception as error:
        log.warning("The catalog cannot be read from here: nothing is removed from its tables.", exc_info=True)
        found |= {each.table: _unseen(question, each, error) for each in asked if each.table not in found}
    return [answer for answer in found.values() if answer is not None]


def _answer(catalog: Catalog, question: _Question, asked: _Asked) -> _Answer | None:
    """Tell what one table needs, or None if it does not exist and the configuration does not name it."""
    try:
        return _looked_at(catalog.load_table(asked.table), question, asked)
    except Exception as error:
        if _is_missing(error):
            # one of a pattern has gone since the catalog was listed
            is_named = asked.table in question.wanted.named
            return _Answer(Assessed(asked.table, is_absent=True), NOTHING) if is_named else None
        # one table never stops the others
        log.warning("%s cannot be looked at from here.", asked.table, exc_info=True)
        return _unseen(question, asked, error)


def _is_missing(error: Exception) -> bool:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    return isinstance(error, NoSuchTableError | NoSuchNamespaceError)


def _looked_at(table: Table, question: _Question, asked: _Asked) -> _Answer:
    governed = question.governed(asked, table)
    options = question.options(asked, governed)
    typed: dict[str, Any] = {job: OPTIONS[job](**given) for job, given in options.items()}
    opened = OpenTable(table, order=typed.get(_SORT, SortDataFilesOptions()))
    looks = {job: _look(opened, job, typed[job]) for job in options}
    idle = {job: look.reason for job, look in looks.items() if isinstance(look, Idle)}
    needed = {job: look for job, look in looks.items() if not isinstance(look, Idle)}
    assessed = replace(_assessed(asked, governed), **_health(opened, question.moment), idle=idle)
    reads, zone = question.reads_of(asked, governed), question.wanted.zone
    pressing = _pressing(assessed.health, needed, governed.min_score)
    window = Protection(windows=governed.windows, zone=zone).closed_at(question.moment)
    if window is not None:
        reason = f"it is worked on from {window.begins} to {window.ends} alone"
        return _Answer(assessed, governed, skipped=tuple(Skipped(asked.table, job, reason) for job in needed))
    beside = asked.owner.others if asked.owner else ()
    return _Answer(
        assessed,
        governed,
        tuple(
            replace(
                _action(asked.table, job, look, reads, _kept_longer(job, typed[job], governed)),
                due=pressing.get(job) or _due(opened, job, look, governed, question.moment),
                options=question.own_options(job, options[job]),
                approve=_waits(job, typed[job], governed),
                protection=governed.protection(job, zone, beside),
            )
            for job, look in needed.items()
        ),
    )


def _look(opened: OpenTable, job: str, options: JobOptions) -> Idle | Work | Untold:
    try:
        return look_at(opened, job, options)
    except SpecError as error:
        # an option may be a template, which only the job's task renders; the job refuses what is wrong
        return Untold(str(error))


def _waits(job: str, options: JobOptions, governed: Governed) -> bool:
    """Whether a person is asked before a job takes something away.

    A dry one takes nothing, and one that is held to a list takes what somebody has agreed to.
    """
    return job in governed.approve and not options.dry_run and getattr(options, "approved", None) is None


def _assessed(asked: _Asked, governed: Governed) -> Assessed:
    beside = asked.owner.table if asked.owner else None
    return Assessed(asked.table, beside, governed.owner, tuple(sorted(governed.jobs)), tuple(sorted(governed.approve)))


def _health(opened: OpenTable, now: datetime) -> dict[str, Any]:
    """What is known of a table's health, as fields of :class:`Assessed`."""
    if opened.head is None:
        return {}
    if opened.is_small:
        found: Mapping[str, Any] = opened.health.facts()
        measured_at = None
    else:
        row = _measured_by_a_job(opened.table, now)
        if row is None:
            return {}
        found, measured_at = row.as_facts(), iso(int(row.measured_at.timestamp() * 1000))
    stands = standing(opened.snapshots, opened.table.properties, now)
    return {"health": {**found, **stands}, "measured_at": measured_at}


def _measured_by_a_job(table: Table, now: datetime) -> HealthRow | None:
    name = ".".join(table.name())
    try:
        return latest_health(table.catalog, name, now - LATELY)
    except Exception:
        # what is to be done there does not hang on it
        log.warning("What jobs have measured of %s cannot be read.", name, exc_info=True)
        return None


def _action(table: str, job: str, look: Work | Untold, reads: float, also: str) -> Action:
    """What a job would have to do.

    :param also: what else is to be told of it.
    """
    if isinstance(look, Untold):
        return Action(table, job, look.reason + also)
    benefit = round(look.benefit * reads, 2)
    return Action(table, job, look.reason + also, benefit, look.core_seconds, look.core_seconds, look.bytes)


def _kept_longer(job: str, options: Any, governed: Governed) -> str:
    """That the table's team keeps more than the configuration does, if it does so."""
    kept = governed.kept_for(job)
    return (
        f"; the table's own policy has it keep what is younger than {kept:g} s"
        if kept and options.max_age == kept
        else ""
    )


def _due(opened: OpenTable, job: str, look: Work | Untold, governed: Governed, now: datetime) -> str | None:
    """Why work can be put off no longer; None if it can.

    It has waited since the job was last at work there, or for as long as the table's snapshots go back.
    """
    if job not in _AT_LEISURE or isinstance(look, Untold):
        return _EVERY_RUN
    limit = MAX_WAIT if governed.max_wait is None else governed.max_wait
    done = next((each for each in opened.snapshots if each.summary.get(names.JOB) == job), opened.snapshots[-1])
    waited = now.timestamp() - done.timestamp_ms / 1000
    return f"it has waited for {waited / 3600:.0f} hours, of at most {limit / 3600:g}" if waited > limit else None


def _pressing(health: Mapping[str, Any] | None, jobs: Collection[str], least: float | None) -> dict[str, str]:
    """The job that a table gains most by, with the reason, if its score is too low; the others may wait."""
    if health is None or least is None or health["score"] >= least:
        return {}
    gains = {job: health["lost"].get(reason, 0.0) for reason, job in REGAINED_BY.items() if job in jobs}
    job = max(gains, key=gains.__getitem__, default=None)
    if job is None or not gains[job]:
        return {}
    return {job: f"the table's score is {health['score']:g}, below {least:g}, and {gains[job]:g} points are its work"}


def _unseen(question: _Question, asked: _Asked, error: Exception) -> _Answer:
    """Plan what a table needs that could not be looked at: nothing that removes, and the rest if it is named."""
    told, governed = one_line(error).removeprefix(f"{asked.table}: "), question.governed_unseen(asked, error)
    assessed = replace(_assessed(asked, governed), error=told)
    options = question.options(asked, governed) if governed.jobs else {}
    actions = tuple(
        Action(
            asked.table,
            job,
            f"nobody could look at it: {told}",
            due=_EVERY_RUN,
            options=question.own_options(job, o),
            approve=_waits(job, OPTIONS[job](**o), governed),
            protection=governed.protection(job, question.wanted.zone),
        )
        for job, o in options.items()
    )
    return _Answer(assessed, governed, actions)
