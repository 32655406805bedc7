"""What may be done to which tables: patterns of names, and policies that tables inherit by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import refuse_unknown

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
#: table property of a team: jobs, with commas between, that may be done to its table; ``none`` is no job
ALLOW = "lakecdc.policy.allow"
_WILD = "*?["


@dataclass(frozen=True)
class TablePolicy:
    """What may be done to the tables that a pattern matches.

    :param allow: jobs of the governance DAGs; ``*`` is all of them.
    """

    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_unknown(dict.fromkeys(self.allow), {*KEEPING, *REMOVING, "*"}, "allow")

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that may be done."""
        return frozenset((*KEEPING, *REMOVING) if "*" in self.allow else self.allow)


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


def allowed(policies: Mapping[str, TablePolicy], table: str, properties: Mapping[str, str]) -> frozenset[str]:
    """Jobs that may be done to a table which nobody has named.

    The most specific pattern decides. The table's own property, if it has one, decides instead, but for jobs that
    remove something: these it can forbid and not allow.

    :param policies: by pattern of ``namespace.name``, such as ``*``, ``shop.*`` and ``shop.orders``.
    :param properties: the table's.
    :raises SpecError: the table's property names no job.
    """
    found = [pattern for pattern in policies if fnmatchcase(table, pattern)]
    jobs = policies[max(found, key=_specificity)].jobs if found else frozenset[str]()
    if (own := properties.get(ALLOW)) is None:
        return jobs
    named = _named(own, table)
    return (named & frozenset(KEEPING)) | (named & jobs)


def _named(text: str, table: str) -> frozenset[str]:
    parts: Sequence[str] = [part.strip() for part in text.split(",") if part.strip()]
    if parts == ["none"]:
        return frozenset()
    try:
        return TablePolicy(tuple(parts)).jobs
    except SpecError as error:
        raise SpecError(f"Its property {ALLOW} is {text!r}: {error}", table=table) from error


def _specificity(pattern: str) -> tuple[bool, int]:
    return not is_pattern(pattern), sum(sign not in _WILD for sign in pattern)
