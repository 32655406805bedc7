"""What may be done to which tables, how and when: policies that tables inherit by patterns of their names.

A table's own properties tighten its policy, and never loosen what a policy says of things that are gone for good. They
are read twice: where work is planned, and by the job itself, so that no plan and no job started by hand gets past them.
A property that cannot be read is no permission.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.fields import parse, parse_moment, refuse_unknown
from lakecdc.contract.options import OPTIONS, JobOptions
from lakecdc.contract.protection import Protection
from lakecdc.contract.protection import Window as Window

#: jobs that keep tables fast, and change neither rows nor what can be read of the past
KEEPING = (
    "rewrite_delete_files",
    "sort_data_files",
    "compact_data_files",
    "rewrite_manifests",
    "tag_snapshots",
    "compute_statistics",
)
#: jobs that take something away for good
REMOVING = ("expire_snapshots", "clean_side_tables", "remove_orphan_files")
#: removes rows, of the tables alone that have a retention
EXPIRE_PARTITIONS = "expire_partitions"
#: jobs that policies speak of
GOVERNED = frozenset((*KEEPING, *REMOVING, EXPIRE_PARTITIONS))
#: jobs of whose findings a person can be asked: what they take away was somebody's rows, or may have been
APPROVABLE = (EXPIRE_PARTITIONS, "remove_orphan_files")
#: prefix of the table properties by which a team governs its own table
OWN = "lakecdc.policy."
#: table property: jobs, with commas between, that may be done to the table; ``none`` is no job
ALLOW = f"{OWN}allow"
#: table property: jobs, with commas between, that wait for a person, besides those of the configuration
APPROVE = f"{OWN}approve"
#: table property: seconds for which ``expire_snapshots`` keeps snapshots at least
MIN_SNAPSHOT_AGE = f"{OWN}min-snapshot-age"
#: table property: seconds for which ``expire_partitions`` keeps rows at least
MIN_ROW_AGE = f"{OWN}min-row-age"
#: table property: how often the table is read, another table being 1
READS = f"{OWN}reads"
#: what a table may be read at most, so that one owner's word does not take every budget
MOST_READS = 1000.0
_WILD = "*?["


@dataclass(frozen=True)
class TablePolicy:
    """What holds for the tables that a pattern matches. What it leaves out, they inherit from wider patterns.

    :param allow: jobs that may be done to tables which only a pattern has found; ``*`` is all of them.
    :param approve: jobs whose findings a person is asked about before anything goes, of ``expire_partitions`` and
        ``remove_orphan_files``; those of wider patterns too.
    :param options: options by job, before those that the configuration gives to all tables.
    :param window: time of day, in the zone of ``schedules``, in which the tables may be worked on.
    :param reads: how often they are read, other tables being 1, at most 1000; what spares much-read tables goes first.
    :param max_wait: seconds for which work may be put off because others are worth more.
    :param min_score: of a table's health; below it, the work that it gains most by is put off no longer.
    :param owner: whom to ask.
    """

    allow: tuple[str, ...] | None = None
    approve: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    window: Window | None = None
    reads: float | None = None
    max_wait: float | None = None
    min_score: float | None = None
    owner: str | None = None

    def __post_init__(self) -> None:
        refuse_unknown(dict.fromkeys(self.allow or ()), {*KEEPING, *REMOVING, "*"}, "allow")
        for job in self.approve:
            if job not in APPROVABLE:
                raise SpecError(
                    f"approve names {job!r}, of which nobody can be asked.",
                    hint=f"A person can be asked of {' and '.join(APPROVABLE)}.",
                )
        refuse_unknown(self.options, {*KEEPING, *REMOVING}, "options")
        for job, options in self.options.items():
            parse(OPTIONS[job], options, f"options.{job}")
        for name in ("max_wait", "min_score"):
            if (value := getattr(self, name)) is not None and not 0 <= value < math.inf:
                raise SpecError(f"{name} is {value}, not 0 or more.")
        if self.reads is not None and not 0 <= self.reads <= MOST_READS:
            raise SpecError(f"reads is {self.reads}, not from 0 to {MOST_READS:g}.")

    @property
    def jobs(self) -> frozenset[str] | None:
        """The jobs that may be done; None if it says nothing of them."""
        if self.allow is None:
            return None
        return frozenset((*KEEPING, *REMOVING) if "*" in self.allow else self.allow)


@dataclass(frozen=True)
class Governed:
    """What holds for one table.

    :param jobs: that may be done to it.
    :param team_jobs: those that its own property names, of which alone any may be done; None if it names none.
    :param approve: those that wait for a person.
    :param own_options: options by job that go before those given to all tables.
    :param windows: times of day in which it may be worked on, all of them at once.
    :param reads: how often it is read, other tables being 1; None if nobody has said it.
    :param max_wait: seconds for which work may be put off because other work is worth more.
    :param min_score: of its health, below which the work that it gains most by is put off no longer.
    :param min_snapshot_age: seconds for which snapshots are kept, whatever options say.
    :param min_row_age: the same of rows.
    """

    jobs: frozenset[str]
    team_jobs: frozenset[str] | None = None
    approve: frozenset[str] = frozenset()
    own_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    min_snapshot_age: float = 0.0
    min_row_age: float = 0.0
    windows: tuple[Window, ...] = ()
    reads: float | None = None
    max_wait: float | None = None
    min_score: float | None = None
    owner: str | None = None

    def forbids(self, job: str) -> bool:
        """Tell whether the table's own property leaves a job out of those that may be done."""
        return job in GOVERNED and self.team_jobs is not None and job not in self.team_jobs

    def options(self, job: str, given: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Options of a job for this table.

        :param given: those that all tables have.
        :param now: with a zone.
        """
        merged = {**given, **self.own_options.get(job, {})}
        try:
            return merged | _raised_age(job, OPTIONS[job](**merged), self.kept_for(job), now)
        except SpecError:
            # a template perhaps, which the job knows rendered: it keeps as long by itself, or refuses what is wrong
            return merged

    def kept_for(self, job: str) -> float:
        """Seconds for which a job keeps what it would expire, as the table's properties say; 0 if they do not."""
        return {"expire_snapshots": self.min_snapshot_age, EXPIRE_PARTITIONS: self.min_row_age}.get(job, 0.0)

    def protection(self, job: str, zone: str, beside: Sequence[str] = ()) -> Protection | None:
        """Return what a job has to be told of this, besides the properties that it reads itself; None if nothing.

        :param zone: of the windows.
        :param beside: tables that it stands beside.
        """
        if job not in (*REMOVING, EXPIRE_PARTITIONS):
            return None
        known = Protection(job in self.approve, self.kept_for(job), self.windows, zone, tuple(beside))
        return None if replace(known, zone="UTC") == Protection() else known

    def keeping(self) -> Governed:
        """Return the same without anything that removes, for a table whose properties are not known."""
        return replace(self, jobs=self.jobs & frozenset(KEEPING), team_jobs=frozenset(KEEPING))


#: what holds for a table of which nobody says more than that it is governed
EVERYTHING = Governed(frozenset((*KEEPING, *REMOVING)))
#: what holds for a table to which nothing may be done
NOTHING = Governed(frozenset(), frozenset())


def permitted(
    job: str, options: JobOptions, table: str, properties: Mapping[str, Mapping[str, str]], now: datetime
) -> JobOptions:
    """Hold a job to the policy of a table at the moment of work.

    :param options: of the job, with the protection that the configuration wants for the table, if it wants one.
    :param properties: the table's and those of the tables that it stands beside, by ``namespace.name``.
    :param now: with a zone.
    :return: the options, keeping as much as any of these want.
    :raises UnsupportedError: one of them does not allow the job, or not yet.
    :raises SpecError: a property ``lakecdc.policy.…`` cannot be read.
    """
    said = {name: tightened(EVERYTHING, name, own) for name, own in properties.items()}
    protection = getattr(options, "protection", {}).get(table, Protection())
    changes_something = not options.dry_run and getattr(options, "action", None) != "restore"
    if changes_something and job in GOVERNED:
        for name, own in said.items():
            whose = "Its property" if name == table else f"The property of {name}"
            if own.forbids(job):
                allowed = properties[name][ALLOW]
                raise _not_permitted(table, f"{whose} {ALLOW} is {allowed!r}, which does not allow {job}.")
            if job in own.approve:
                _refuse_unapproved(job, options, table, f"{whose} {APPROVE}")
        if protection.approve:
            _refuse_unapproved(job, options, table, "The configuration (approve)")
        if (window := protection.closed_at(now)) is not None:
            times = f"from {window.begins} to {window.ends} ({protection.zone})"
            raise _not_permitted(table, f"The configuration has it worked on {times} alone.")
    kept = max(protection.min_age, *(own.kept_for(job) for own in said.values()))
    return replace(options, **_raised_age(job, options, kept, now))


def _refuse_unapproved(job: str, options: JobOptions, table: str, who: str) -> None:
    """Refuse a job that is held to no list to which a person has agreed."""
    if getattr(options, "approved", None) is None:
        raise _not_permitted(table, f"{who} wants a person to agree to what {job} removes, and nobody has.")


def _not_permitted(table: str, why: str) -> UnsupportedError:
    return UnsupportedError(why, table=table, hint="Nothing was changed. See the table's policy.")


def _raised_age(job: str, options: Any, kept: float, now: datetime) -> dict[str, Any]:
    """Return the options by which a job keeps what is younger than some seconds; none if it does so anyway."""
    if not kept or (age := _age(job, options, now)) is None or age >= kept:
        return {}
    return {"older_than": None, "max_age": kept}


def _age(job: str, options: Any, now: datetime) -> float | None:
    """Return the seconds after which a job expires something, or None if it is told no age, and so refuses to."""
    if options.older_than is None:
        return None if job == EXPIRE_PARTITIONS and not options.max_age else float(options.max_age)
    return (now - parse_moment(options.older_than, "older_than")).total_seconds()


def is_pattern(name: str) -> bool:
    """Whether an entry of a list of tables stands for those that match it, or excludes them."""
    return name.startswith("!") or any(sign in name for sign in _WILD)


def matching(entries: Iterable[str], tables: Iterable[str]) -> list[str]:
    """Tables that a list of names and patterns stands for, in the order of the tables.

    :param entries: ``namespace.name``, patterns of it with ``*`` and ``?``, and with ``!`` in front what is left out
        whatever else matches.
    :param tables: those that there are.
    """
    known = list(entries)
    wanted = [entry for entry in known if not entry.startswith("!")]
    left_out = [entry[1:] for entry in known if entry.startswith("!")]
    return [
        table
        for table in tables
        if any(fnmatchcase(table, entry) for entry in wanted) and not any(fnmatchcase(table, e) for e in left_out)
    ]


def inherited(policies: Mapping[str, TablePolicy], table: str, *, is_named: bool) -> Governed:
    """What the configuration says of a table: of each field what the most specific pattern has.

    :param policies: by pattern of ``namespace.name``, such as ``*``, ``shop.*`` and ``shop.orders``.
    :param is_named: somebody has named the table, or ingestion feeds it, so that everything may be done to it; else
        nothing may, but what ``allow`` says.
    """
    found = sorted((pattern for pattern in policies if fnmatchcase(table, pattern)), key=_specificity)
    governed = EVERYTHING if is_named else replace(EVERYTHING, jobs=frozenset())
    for policy in (policies[pattern] for pattern in found):
        own = {
            name: value
            for name in ("reads", "max_wait", "min_score", "owner")
            if (value := getattr(policy, name)) is not None
        }
        governed = replace(
            governed,
            jobs=governed.jobs if is_named or policy.jobs is None else policy.jobs,
            approve=governed.approve | {*policy.approve},
            own_options=_merged(governed.own_options, policy.options),
            windows=(policy.window,) if policy.window else governed.windows,
            **own,
        )
    return governed


def tightened(governed: Governed, table: str, properties: Mapping[str, str]) -> Governed:
    """What the table's own properties make of it.

    :param properties: the table's.
    :raises SpecError: a property that nobody knows, or that says nothing.
    """
    own = {name: value for name, value in properties.items() if name.startswith(OWN)}
    for name, value in own.items():
        try:
            refuse_unknown({name: value}, set(_PROPERTIES), "its properties")
            governed = _PROPERTIES[name](governed, value)
        except (SpecError, ValueError) as error:
            raise SpecError(f"Its property {name} is {value!r}: {error}", table=table) from error
    return governed


def tighter(one: Governed, other: Governed) -> Governed:
    """Return what holds for a table where two policies do: less is allowed, more is asked about, more is kept."""
    teams = [each.team_jobs for each in (one, other) if each.team_jobs is not None]
    return replace(
        one,
        jobs=one.jobs & other.jobs,
        team_jobs=reduce(frozenset.intersection, teams) if teams else None,
        approve=one.approve | other.approve,
        min_snapshot_age=max(one.min_snapshot_age, other.min_snapshot_age),
        min_row_age=max(one.min_row_age, other.min_row_age),
        windows=tuple(dict.fromkeys((*one.windows, *other.windows))),
    )


def _allow(governed: Governed, value: str) -> Governed:
    """Allow what keeps the table fast, and of what removes something only what the configuration allows too."""
    listed = () if value.strip() == "none" else _listed(value)
    refuse_unknown(dict.fromkeys(listed), {*GOVERNED, "*"}, "allow")
    named = GOVERNED if "*" in listed else frozenset(listed)
    return replace(governed, jobs=(named & frozenset(KEEPING)) | (named & governed.jobs), team_jobs=named)


def _approve(governed: Governed, value: str) -> Governed:
    return replace(governed, approve=governed.approve | {*TablePolicy(approve=_listed(value)).approve})


def _min_snapshot_age(governed: Governed, value: str) -> Governed:
    return replace(governed, min_snapshot_age=_seconds(value))


def _min_row_age(governed: Governed, value: str) -> Governed:
    return replace(governed, min_row_age=_seconds(value))


def _reads(governed: Governed, value: str) -> Governed:
    return replace(governed, reads=TablePolicy(reads=float(value)).reads or 0.0)


_PROPERTIES: dict[str, Callable[[Governed, str], Governed]] = {
    ALLOW: _allow,
    APPROVE: _approve,
    MIN_SNAPSHOT_AGE: _min_snapshot_age,
    MIN_ROW_AGE: _min_row_age,
    READS: _reads,
}


def _seconds(text: str) -> float:
    found = float(text)
    if not 0 <= found < math.inf:
        raise SpecError("That is no number of seconds.")
    return found


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _merged(
    options: Mapping[str, Mapping[str, Any]], more: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    return {job: {**options.get(job, {}), **more.get(job, {})} for job in (*options, *more)}


def _specificity(pattern: str) -> tuple[bool, int]:
    return not is_pattern(pattern), sum(sign not in _WILD for sign in pattern)
