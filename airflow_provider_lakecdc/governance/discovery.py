"""Select the tables that names and patterns match, and read from a query log how often they are read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.names import is_side_table
from lakecdc.metadata.policy import TablePolicy, is_pattern, matching

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)
_DAY = 24 * 3600.0


@dataclass(frozen=True)
class TableSelection:
    """Names and patterns of the tables to govern.

    :param tables: names and patterns, see :func:`lakecdc.metadata.policy.matching`.
    :param fed: patterns of ingestion's targets; tables that ingestion created are governed like named targets.
    :param zone: time zone of the policies' windows.
    :param query_log: source of read frequencies that no policy sets.
    :param promises: promised freshness by name or pattern of ingestion's targets; None for no promise.
    """

    tables: tuple[str, ...]
    fed: tuple[str, ...] = ()
    policies: Mapping[str, TablePolicy] = field(default_factory=dict)
    zone: str = "UTC"
    query_log: QueryLog | None = None
    promises: Mapping[str, str | None] = field(default_factory=dict)

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
        existing = sorted(tables_in(opened))
    matches = matching((*selection.tables, *selection.fed), existing)
    known = {*named}
    others = [name for name in matches if name not in known and not is_side_table(name)]
    return SelectedTables([*named, *others], frozenset(existing))


def tables_in(catalog: Catalog) -> Iterator[str]:
    """Yield the names of all tables of a catalog."""
    from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError

    queue = list(catalog.list_namespaces())
    while queue:
        namespace = queue.pop()
        yield from map(".".join, catalog.list_tables(namespace))
        # catalogs with one level reject the call
        with suppress(BadRequestError, NoSuchNamespaceError, NotImplementedError):
            queue += [child for child in catalog.list_namespaces(namespace) if len(child) > len(namespace)]


@dataclass(frozen=True)
class QueryLog:
    """A table with a row per read of a table.

    :param table: name of the log table, which pyiceberg reads; it must not have equality deletes.
    :param name_column: text column with the table read: ``namespace.name``, with or without its catalog, in any case.
    :param time_column: timestamp or date column, in UTC if without a zone.
    :param max_age: seconds after which a read no longer counts.
    """

    table: str
    name_column: str
    time_column: str
    max_age: float = 7 * 24 * 3600.0

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise SpecError(f"query_log.max_age must be above 0 seconds, got {self.max_age}.")

    def reads(self, catalog: CatalogConnection, tables: Collection[str], now: datetime) -> dict[str, float]:
        """Return how often each table was read recently, with mean 1; empty if none was, or the log cannot be read."""
        counts = self._counts_of(catalog, tables, now)
        return {table: counts[table] * len(tables) / counts.total() for table in tables} if counts else {}

    def reads_per_day(self, catalog: CatalogConnection, tables: Collection[str], now: datetime) -> dict[str, float]:
        """Return how many reads of each table the log has for an average day of the last ``max_age`` seconds.

        It is empty if the log cannot be read.
        """
        counts = self._counts_of(catalog, tables, now)
        return {} if counts is None else {table: counts[table] * _DAY / self.max_age for table in tables}

    def _counts_of(self, catalog: CatalogConnection, tables: Collection[str], now: datetime) -> Counter[str] | None:
        try:
            with closing(catalog.load()) as opened:
                logged = self._counts(opened.load_table(self.table), now - timedelta(seconds=self.max_age))
        except Exception:
            # it only affects priorities and estimates
            log.warning("Cannot read the query log %s.", self.table, exc_info=True)
            return None
        by_name = {table.casefold(): table for table in tables}
        counts: Counter[str] = Counter()
        for name, count in logged.items():
            full_name = name.strip().casefold()
            while full_name not in by_name and "." in full_name:
                full_name = full_name.partition(".")[2]
            if full_name in by_name:
                counts[by_name[full_name]] += count
        return counts

    def _counts(self, table: Table, since: datetime) -> Counter[str]:
        from pyiceberg.expressions import GreaterThanOrEqual, Reference
        from pyiceberg.expressions.literals import literal

        recent = GreaterThanOrEqual(term=Reference(self.time_column), value=literal(since))
        counts: Counter[str] = Counter()
        for batch in table.scan(recent, selected_fields=(self.name_column,)).to_arrow_batch_reader():
            for each in batch.column(self.name_column).drop_null().value_counts():
                counts[each["values"].as_py()] += each["counts"].as_py()
        return counts
