"""Policies for jobs on tables, inherited by name patterns.

A table's own properties tighten its policy, and never relax it for irreversible removals. They are read twice: during
planning and by the job itself, so that neither a plan nor a manually started job bypasses them. A property that cannot
be read grants nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.fields import parse, parse_duration, parse_moment, refuse_unknown
from lakecdc.contract.job_options import JobOptions
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.protection import Protection
from lakecdc.contract.protection import Window as Window
from lakecdc.metadata.readers import ReaderName

#: jobs that keep tables fast, and change neither rows nor the readable past
KEEPING = (
    "rewrite_delete_files",
    "sort_data_files",
    "compact_data_files",
    "rewrite_manifests",
    "tag_snapshots",
    "compute_statistics",
)
#: jobs that remove something irreversibly
REMOVING = ("expire_snapshots", "clean_side_tables", "remove_orphan_files")
#: removes rows, only of tables with a retention
EXPIRE_PARTITIONS = "expire_partitions"
#: jobs that policies cover
GOVERNED = frozenset((*KEEPING, *REMOVING, EXPIRE_PARTITIONS))
#: jobs whose findings can require approval, because they may remove users' rows
APPROVABLE = (EXPIRE_PARTITIONS, "remove_orphan_files")
#: prefix of the table properties with which a team governs its own table
OWN = "lakecdc.policy."
#: table property: comma-separated jobs allowed on the table; ``none`` allows no job
ALLOW = f"{OWN}allow"
#: table property: comma-separated jobs that require approval, besides those of the configuration
APPROVE = f"{OWN}approve"
#: table property: minimum seconds that ``expire_snapshots`` keeps snapshots
MIN_SNAPSHOT_AGE = f"{OWN}min-snapshot-age"
#: table property: minimum seconds that ``expire_partitions`` keeps rows
MIN_ROW_AGE = f"{OWN}min-row-age"
#: table property: how often the table is read, relative to 1 for other tables
READS = f"{OWN}reads"
#: maximum of ``reads``, so that one owner cannot claim every budget
MOST_READS = 1000.0
_WILD = "*?["


@dataclass(frozen=True)
class TablePolicy:
    """Rules for the tables that a pattern matches; fields that are not set are inherited from wider patterns.

    :param allow: jobs allowed on tables that only a pattern matches; ``*`` means all of them.
    :param approve: jobs, of ``expire_partitions`` and ``remove_orphan_files``, whose findings need approval before
        anything is removed; those of wider patterns are added.
    :param options: options by job, which override those that the configuration gives to all tables.
    :param window: time of day, in the zone of ``schedules``, in which jobs may work on the tables.
    :param reads: how often they are read, relative to 1 for other tables, at most 1000; work on frequently read tables
        goes first.
    :param max_wait: seconds for which work may be postponed in favour of more worthwhile work.
    :param min_score: health below which the most beneficial work is no longer postponed.
    :param owner: contact for the tables.
    :param readers: engines that read the tables, instead of those of the whole configuration; a target can have its
        own.
    :param freshness: promised highest age of the newest source moment that readers see, such as ``30m``, instead of
        that of the whole configuration; a target can have its own.
    """

    allow: tuple[str, ...] | None = None
    approve: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    window: Window | None = None
    reads: float | None = None
    max_wait: float | None = None
    min_score: float | None = None
    owner: str | None = None
    readers: tuple[ReaderName, ...] | None = None
    freshness: str | None = None

    def __post_init__(self) -> None:
        refuse_unknown(dict.fromkeys(self.allow or ()), {*KEEPING, *REMOVING, "*"}, "allow")
        for job in self.approve:
            if job not in APPROVABLE:
                raise SpecError(
                    f"Job {job!r} in approve does not support approval.",
                    hint=f"Use {' or '.join(APPROVABLE)}.",
                )
        refuse_unknown(self.options, {*KEEPING, *REMOVING}, "options")
        for job, options in self.options.items():
            parse(OPTIONS[job], options, f"options.{job}")
        for name in ("max_wait", "min_score"):
            if (value := getattr(self, name)) is not None and not 0 <= value < math.inf:
                raise SpecError(f"Expected {name} of 0 or more, got {value}.")
        if self.freshness is not None:
            parse_duration(self.freshness, "freshness")
        if self.reads is not None and not 0 <= self.reads <= MOST_READS:
            raise SpecError(f"Expected reads from 0 to {MOST_READS:g}, got {self.reads}.")

    @property
    def jobs(self) -> frozenset[str] | None:
        """Return the allowed jobs; None if the policy does not define them."""
        if self.allow is None:
            return None
        return frozenset((*KEEPING, *REMOVING) if "*" in self.allow else self.allow)


@dataclass(frozen=True)
class Governed:
    """Effective policy of one table; for fields without a description see :class:`TablePolicy`.

    :param team_jobs: the only jobs that its own property allows; None if it names none.
    :param own_options: options by job with precedence over those of all tables.
    :param min_snapshot_age: seconds that snapshots are kept, regardless of options.
    :param min_row_age: the same for rows.
    :param windows: times of day in which work is allowed, all at once.
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
    readers: tuple[ReaderName, ...] | None = None
    freshness: str | None = None

    def forbids(self, job: str) -> bool:
        """Check whether the table's own property excludes a job."""
        return job in GOVERNED and self.team_jobs is not None and job not in self.team_jobs

    def options(self, job: str, given: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Return the options of a job for this table, merged into those of all tables."""
        merged = {**given, **self.own_options.get(job, {})}
        try:
            return merged | _raised_age(job, OPTIONS[job](**merged), self.kept_for(job), now)
        except SpecError:
            # possibly a template: the job applies the minimum age to the rendered value, or refuses it
            return merged

    def kept_for(self, job: str) -> float:
        """Return the minimum seconds that a job keeps what it would expire, by the table's properties; 0 if not set."""
        return {"expire_snapshots": self.min_snapshot_age, EXPIRE_PARTITIONS: self.min_row_age}.get(job, 0.0)

    def protection(self, job: str, zone: str, beside: Sequence[str] = ()) -> Protection | None:
        """Return the part of the policy that a job cannot read from properties; None if there is none.

        :param zone: of the windows.
        :param beside: tables that own this side table.
        """
        if job not in (*REMOVING, EXPIRE_PARTITIONS):
            return None
        known = Protection(job in self.approve, self.kept_for(job), self.windows, zone, tuple(beside))
        return None if replace(known, zone="UTC") == Protection() else known

    def keeping(self) -> Governed:
        """Return the policy without jobs that remove something, for a table whose properties are not known."""
        return replace(self, jobs=self.jobs & frozenset(KEEPING), team_jobs=frozenset(KEEPING))


#: policy of a governed table without further rules
EVERYTHING = Governed(frozenset((*KEEPING, *REMOVING)))
#: policy of a table on which no job is allowed
NOTHING = Governed(frozenset(), frozenset())


def permitted_options(
    job: str, options: JobOptions, table: str, properties: Mapping[str, Mapping[str, str]], now: datetime
) -> JobOptions:
    """Apply the policy of a table to a job when it starts.

    :param options: of the job, with the configured protection for the table, if any.
    :param properties: of the table and its owners, by ``namespace.name``.
    :return: the options, with the longest retention that any of these require.
    :raises UnsupportedError: one of them does not allow the job, or not yet.
    :raises SpecError: a property ``lakecdc.policy.…`` cannot be read.
    """
    by_table = {name: tighten(EVERYTHING, name, own) for name, own in properties.items()}
    protection = getattr(options, "protection", {}).get(table, Protection())
    changes_something = not options.dry_run and getattr(options, "action", None) != "restore"
    if changes_something and job in GOVERNED:
        for name, own in by_table.items():
            whose = "Its property" if name == table else f"The property of {name}"
            if own.forbids(job):
                allowed = properties[name][ALLOW]
                raise _not_permitted(table, f"{whose} {ALLOW} is {allowed!r} and does not allow {job}.")
            if job in own.approve:
                _refuse_unapproved(job, options, table, f"{whose} {APPROVE}")
        if protection.approve:
            _refuse_unapproved(job, options, table, "The configuration (approve)")
        if (window := protection.closed_at(now)) is not None:
            times = f"from {window.begins} to {window.ends} ({protection.zone})"
            raise _not_permitted(table, f"The configuration allows work on it only {times}.")
    min_age = max(protection.min_age, *(own.kept_for(job) for own in by_table.values()))
    return replace(options, **_raised_age(job, options, min_age, now))


def _refuse_unapproved(job: str, options: JobOptions, table: str, who: str) -> None:
    if getattr(options, "approved", None) is None:
        raise _not_permitted(table, f"{who} requires approval of what {job} removes, and it has not been approved.")


def _not_permitted(table: str, why: str) -> UnsupportedError:
    return UnsupportedError(why, table=table, hint="Nothing was changed. See the table's policy.")


def _raised_age(job: str, options: Any, min_age: float, now: datetime) -> dict[str, Any]:
    """Return the options that make a job keep everything younger than some seconds; empty if it already does."""
    if not min_age or (age := _age(job, options, now)) is None or age >= min_age:
        return {}
    return {"older_than": None, "max_age": min_age}


def _age(job: str, options: Any, now: datetime) -> float | None:
    """Return the age in seconds at which a job expires something, or None if no age is given and it refuses to run."""
    if options.older_than is None:
        return None if job == EXPIRE_PARTITIONS and not options.max_age else float(options.max_age)
    return (now - parse_moment(options.older_than, "older_than")).total_seconds()


def is_pattern(name: str) -> bool:
    """Check whether an entry of a list of tables is a pattern or an exclusion."""
    return name.startswith("!") or any(sign in name for sign in _WILD)


def pattern_of(target: str) -> str:
    """Return the pattern of the tables that a target feeds, with ``*`` in place of its placeholders."""
    return re.sub(r"\{[^{}]*\}", "*", target)


def matching(entries: Iterable[str], tables: Iterable[str]) -> list[str]:
    """Return the tables that a list of names and patterns matches, in the order of the tables.

    :param entries: ``namespace.name``, patterns of it with ``*`` and ``?``, and exclusions with a leading ``!``.
    """
    known = list(entries)
    included = [entry for entry in known if not entry.startswith("!")]
    left_out = [entry[1:] for entry in known if entry.startswith("!")]
    return [
        table
        for table in tables
        if any(fnmatchcase(table, entry) for entry in included) and not any(fnmatchcase(table, e) for e in left_out)
    ]


def inherit_policy(policies: Mapping[str, TablePolicy], table: str, *, is_named: bool) -> Governed:
    """Return the configured policy of a table, with each field from the most specific pattern.

    :param policies: by pattern of ``namespace.name``, such as ``*``, ``shop.*`` and ``shop.orders``.
    :param is_named: the table is named or fed by ingestion, so that every job is allowed; otherwise only those in
        ``allow``.
    """
    matching = [pattern for pattern in policies if fnmatchcase(table, pattern)]
    patterns = sorted(matching, key=lambda each: (not is_pattern(each), sum(sign not in _WILD for sign in each)))
    governed = EVERYTHING if is_named else replace(EVERYTHING, jobs=frozenset())
    for policy in (policies[pattern] for pattern in patterns):
        own = {
            name: value
            for name in ("reads", "max_wait", "min_score", "owner", "readers", "freshness")
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


def tighten(governed: Governed, table: str, properties: Mapping[str, str]) -> Governed:
    """Tighten a policy by the table's own properties.

    :raises SpecError: a property is unknown or invalid.
    """
    own = {name: value for name, value in properties.items() if name.startswith(OWN)}
    for name, value in own.items():
        try:
            refuse_unknown({name: value}, set(_PROPERTIES), "its properties")
            governed = _PROPERTIES[name](governed, value)
        except (SpecError, ValueError) as error:
            raise SpecError(f"Its property {name} is {value!r}: {error}", table=table) from error
    return governed


def combine_policies(one: Governed, other: Governed) -> Governed:
    """Combine two policies: fewer jobs, more approvals, longer retention."""
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
    """Allow jobs that keep the table fast, and jobs that remove something only if the configuration allows them too."""
    listed = () if value.strip() == "none" else _listed(value)
    refuse_unknown(dict.fromkeys(listed), {*GOVERNED, "*"}, "allow")
    named = GOVERNED if "*" in listed else frozenset(listed)
    return replace(governed, jobs=(named & frozenset(KEEPING)) | (named & governed.jobs), team_jobs=named)


def _approve(governed: Governed, value: str) -> Governed:
    return replace(governed, approve=governed.approve | {*TablePolicy(approve=_listed(value)).approve})


_PROPERTIES: dict[str, Callable[[Governed, str], Governed]] = {
    ALLOW: _allow,
    APPROVE: _approve,
    MIN_SNAPSHOT_AGE: lambda governed, value: replace(governed, min_snapshot_age=_seconds(value)),
    MIN_ROW_AGE: lambda governed, value: replace(governed, min_row_age=_seconds(value)),
    READS: lambda governed, value: replace(governed, reads=TablePolicy(reads=float(value)).reads or 0.0),
}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise SpecError("Expected a number of seconds.")
    return seconds


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _merged(
    options: Mapping[str, Mapping[str, Any]], more: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    return {job: {**options.get(job, {}), **more.get(job, {})} for job in (*options, *more)}
