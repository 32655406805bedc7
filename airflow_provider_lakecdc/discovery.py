"""Finding the tables that a list of names and patterns stands for, and what may be done to each."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.metadata import names
from lakecdc.metadata.names import is_side_table
from lakecdc.metadata.policy import KEEPING, REMOVING, TablePolicy, allowed, is_pattern, matching

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)
_ALL = frozenset((*KEEPING, *REMOVING))
_THREADS = 4


@dataclass(frozen=True)
class Wanted:
    """The tables that governance is to look for.

    :param tables: names and patterns, see :func:`lakecdc.metadata.policy.matching`.
    :param fed: patterns of tables that ingestion feeds; what it has made among them is governed like its targets.
    :param policies: what may be done to tables that nobody has named, by pattern.
    """

    tables: tuple[str, ...]
    fed: tuple[str, ...]
    policies: Mapping[str, TablePolicy]

    @property
    def named(self) -> list[str]:
        """Tables that are named, to which everything may be done, whether they exist or not."""
        return [entry for entry in self.tables if not is_pattern(entry)]


@dataclass(frozen=True)
class Discovered:
    """One table.

    :param jobs: that may be done to it.
    :param error: why nobody can tell, if that is so.
    """

    jobs: frozenset[str]
    error: str | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {"jobs": sorted(self.jobs), **({"error": self.error} if self.error else {})}


def discover(catalog: CatalogConnection, wanted: Wanted) -> dict[str, Discovered]:
    """Find tables, those that are named first.

    Side tables are left out unless they are named, since they go with the tables that they stand beside.
    """
    found = {name: Discovered(_ALL) for name in wanted.named}
    with closing(catalog.load()) as opened:
        there = sorted(_tables(opened))
    others = [name for name in matching((*wanted.tables, *wanted.fed), there) if name not in found]
    others = [name for name in others if not is_side_table(name)]
    parts = [part for number in range(_THREADS) if (part := others[number::_THREADS])]
    with ThreadPoolExecutor(_THREADS) as pool:
        # clients of some catalogs are not for several threads, so that each has its own
        judged = {
            name: each for part in pool.map(partial(_judged, catalog, wanted), parts) for name, each in part.items()
        }
    return found | {name: judged[name] for name in others}


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


def _judged(catalog: CatalogConnection, wanted: Wanted, tables: Sequence[str]) -> dict[str, Discovered]:
    with closing(catalog.load()) as opened:
        return {name: _judge(opened, wanted, name) for name in tables}


def _judge(catalog: Catalog, wanted: Wanted, name: str) -> Discovered:
    try:
        properties = catalog.load_table(name).properties
        if names.LAYOUT in properties and matching(wanted.fed, [name]):
            return Discovered(_ALL)
        return Discovered(allowed(wanted.policies, name, properties))
    except Exception as error:
        # one table never stops the others
        log.warning("Nobody can tell what may be done to %s.", name, exc_info=True)
        return Discovered(frozenset(), f"{type(error).__name__}: {error}")
