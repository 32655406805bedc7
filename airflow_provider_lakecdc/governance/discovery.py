"""Finding the tables that a list of names and patterns stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.governance.query_log import QueryLog
from lakecdc.metadata.names import is_side_table
from lakecdc.metadata.policy import TablePolicy, is_pattern, matching

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


@dataclass(frozen=True)
class Wanted:
    """The tables that governance is to look for.

    :param tables: names and patterns, see :func:`lakecdc.metadata.policy.matching`.
    :param fed: patterns of tables that ingestion feeds; what it has made among them is governed like its targets.
    :param policies: what holds for tables, by pattern.
    :param zone: of the windows of policies.
    :param query_log: tells how often tables are read, of which no policy says it.
    """

    tables: tuple[str, ...]
    fed: tuple[str, ...] = ()
    policies: Mapping[str, TablePolicy] = field(default_factory=dict)
    zone: str = "UTC"
    query_log: QueryLog | None = None

    @property
    def named(self) -> list[str]:
        """Tables that are named, to which everything may be done, whether they exist or not."""
        return [entry for entry in self.tables if not is_pattern(entry)]

    @property
    def has_patterns(self) -> bool:
        """Whether only the catalog can tell which tables are meant."""
        return bool(self.fed) or any(is_pattern(entry) for entry in self.tables)


@dataclass(frozen=True)
class Found:
    """Tables that are wanted.

    :param tables: those that are named first; side tables are left out unless they are named, since they go with the
        tables that they stand beside.
    :param there: all tables of the catalog; None if it was not asked.
    """

    tables: list[str]
    there: frozenset[str] | None = None


def find(catalog: CatalogConnection, wanted: Wanted) -> Found:
    """Find the tables that are wanted. The catalog is asked only where there are patterns."""
    named = wanted.named
    if not wanted.has_patterns:
        return Found(named)
    with closing(catalog.load()) as opened:
        there = sorted(_tables(opened))
    found = matching((*wanted.tables, *wanted.fed), there)
    known = {*named}
    others = [name for name in found if name not in known and not is_side_table(name)]
    return Found([*named, *others], frozenset(there))


def _tables(catalog: Catalog) -> Iterator[str]:
    waiting = list(catalog.list_namespaces())
    while waiting:
        namespace = waiting.pop()
        for name in catalog.list_tables(namespace):
            yield ".".join(name)
        waiting += [below for below in _below(catalog, namespace) if len(below) > len(namespace)]


def _below(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError

    try:
        return list(catalog.list_namespaces(namespace))
    except (BadRequestError, NoSuchNamespaceError, NotImplementedError):
        # some catalogs have one level, and take the question amiss
        return []
