"""Read frequencies of tables from a query log in their catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakecdc.contract.errors import SpecError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


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

    def reads(self, catalog: Catalog, tables: Collection[str], now: datetime) -> dict[str, float]:
        """Return how often each table was read recently, with mean 1; empty if none was read.

        :param tables: ``namespace.name`` of each.
        :param now: with a zone.
        """
        by_name = {table.casefold(): table for table in tables}
        counts: Counter[str] = Counter()
        for name, count in self._counts(catalog.load_table(self.table), now - timedelta(seconds=self.max_age)).items():
            full_name = name.strip().casefold()
            while full_name not in by_name and "." in full_name:
                full_name = full_name.partition(".")[2]
            if full_name in by_name:
                counts[by_name[full_name]] += count
        return {table: counts[table] * len(tables) / counts.total() for table in tables} if counts else {}

    def _counts(self, log: Table, since: datetime) -> Counter[str]:
        from pyiceberg.expressions import GreaterThanOrEqual, Reference
        from pyiceberg.expressions.literals import literal

        recent = GreaterThanOrEqual(term=Reference(self.time_column), value=literal(since))
        counts: Counter[str] = Counter()
        for batch in log.scan(recent, selected_fields=(self.name_column,)).to_arrow_batch_reader():
            for each in batch.column(self.name_column).drop_null().value_counts():
                counts[each["values"].as_py()] += each["counts"].as_py()
        return counts
