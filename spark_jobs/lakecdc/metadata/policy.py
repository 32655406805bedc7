"""What may be done to which tables, how and when: policies that tables inherit by patterns of their names.

A table's own properties tighten its policy, and never loosen what a policy says of things that are gone for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from fnmatch import fnmatchcase
from typing import Any

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse, parse_moment, refuse_unknown
from lakecdc.contract.options import OPTIONS

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
class Window:
    """A time of day in which a table may be worked on.

    :param begins: ``HH:MM``.
    :param ends: ``HH:MM``; before ``begins`` it is on the next day.
    """

    begins: str
    ends: str

    def __post_init__(self) -> None:
        for text in (self.begins, self.ends):
            try:
                time.fromisoformat(text)
            except ValueError as error:
                raise SpecError(f"A window has {text!r}, which is no time of day.", hint='Write "22:30".') from error

    def holds(self, moment: datetime) -> bool:
        """Whether it holds a moment, told in the zone of the window."""
        begins, ends, at = time.fromisoformat(self.begins), time.fromisoformat(self.ends), moment.time()
        return begins <= at < ends if begins <= ends else at >= begins or at < ends


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
    :param approve: those that wait for a person.
    :param own_options: options by job that go before those given to all tables.
    :param window: time of day in which it may be worked on.
    :param reads: how often it is read, other tables being 1; None if nobody has said it.
    :param max_wait: seconds for which work may be put off because other work is worth more.
    :param min_score: of its health, below which the work that it gains most by is put off no longer.
    :param min_snapshot_age: seconds for which snapshots are kept, whatever options say.
    :param min_row_age: the same of rows.
    """

    jobs: frozenset[str]
    approve: frozenset[str] = frozenset()
    own_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    min_snapshot_age: float = 0.0
    min_row_age: float = 0.0
    window: Window | None = None
    reads: float | None = None
    max_wait: float | None = None
    min_score: float | None = None
    owner: str | None = None

    def options(self, job: str, given: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Options of a job for this table.

        :param given: those that all tables have.
        :param now: with a zone.
        """
        found = {**given, **self.own_options.get(job, {})}
        if (kept := self.kept_for(job)) and (age := _age(job, found, now)) is not None and age < kept:
            found |= {"older_than": None, "max_age": kept}
        return found

    def kept_for(self, job: str) -> float:
        """Seconds for which a job keeps what it would expire, as the table's properties say; 0 if they do not."""
        return {"expire_snapshots": self.min_snapshot_age, EXPIRE_PARTITIONS: self.min_row_age}.get(job, 0.0)


#: what holds for a table of which nobody says more than that it is governed
EVERYTHING = Governed(frozenset((*KEEPING, *REMOVING)))


def _age(job: str, options: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds after which a job expires something; None if it is told no age, and so refuses to."""
    asked: Any = OPTIONS[job](**options)
    if asked.older_than is None:
        return None if job == EXPIRE_PARTITIONS and not asked.max_age else float(asked.max_age)
    return (now - parse_moment(asked.older_than, "older_than")).total_seconds()


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
            for name in ("window", "reads", "max_wait", "min_score", "owner")
            if (value := getattr(policy, name)) is not None
        }
        governed = replace(
            governed,
            jobs=governed.jobs if is_named or policy.jobs is None else policy.jobs,
            approve=governed.approve | {*policy.approve},
            own_options=_merged(governed.own_options, policy.options),
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


def _allow(governed: Governed, value: str) -> Governed:
    """Allow what keeps the table fast, and of what removes something only what the configuration allows too."""
    named = frozenset[str]() if value.strip() == "none" else TablePolicy(_listed(value)).jobs or frozenset[str]()
    return replace(governed, jobs=(named & frozenset(KEEPING)) | (named & governed.jobs))


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
