"""Select the tables that names and patterns match."""

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
class TableSelection:
    """Names and patterns of the tables to govern.

    :param tables: names and patterns, see :func:`lakecdc.metadata.policy.matching`.
    :param fed: patterns of ingestion's targets; tables that ingestion created are governed like named targets.
    :param policies: policies by pattern.
    :param zone: time zone of the policies' windows.
    :param query_log: source of read frequencies that no policy sets.
    """

    tables: tuple[str, ...]
    fed: tuple[str, ...] = ()
    policies: Mapping[str, TablePolicy] = field(default_factory=dict)
    zone: str = "UTC"
    query_log: QueryLog | None = None

    @property
    def named(self) -> list[str]:
        """Return the tables that are named without a pattern, whether they exist or not."""
        return [entry for entry in self.tables if not is_pattern(entry)]

    @property
    def has_patterns(self) -> bool:
        """Return whether selecting needs a list of the catalog's tables."""
        return bool(self.fed) or any(is_pattern(entry) for entry in self.tables)


@dataclass(frozen=True)
class SelectedTables:
    """Tables of a selection.

    :param tables: named tables first; side tables only if named, as they are assessed with their main tables.
    :param existing: all tables of the catalog; None if it was not listed.
    """

    tables: list[str]
    existing: frozenset[str] | None = None


def select_tables(catalog: CatalogConnection, selection: TableSelection) -> SelectedTables:
    """Select tables; the catalog is listed only if there are patterns."""
    named = selection.named
    if not selection.has_patterns:
        return SelectedTables(named)
    with closing(catalog.load()) as opened:
        existing = sorted(_tables(opened))
    matches = matching((*selection.tables, *selection.fed), existing)
    known = {*named}
    others = [name for name in matches if name not in known and not is_side_table(name)]
    return SelectedTables([*named, *others], frozenset(existing))


def _tables(catalog: Catalog) -> Iterator[str]:
    queue = list(catalog.list_namespaces())
    while queue:
        namespace = queue.pop()
        for name in catalog.list_tables(namespace):
            yield ".".join(name)
        queue += [child for child in _children(catalog, namespace) if len(child) > len(namespace)]


def _children(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError

    try:
        return list(catalog.list_namespaces(namespace))
    except (BadRequestError, NoSuchNamespaceError, NotImplementedError):
        # catalogs with one level reject the call
        return []
