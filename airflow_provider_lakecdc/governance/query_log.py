"""How often tables are read, as a query log in their catalog tells."""

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
    """A table with a row for each time that somebody has read a table.

    :param table: its name; pyiceberg reads it, so that it has no equality deletes.
    :param name_column: column of text with the table that was read: ``namespace.name``, with its catalog in front or
        without, in whatever case.
    :param time_column: column of the moment or the date, which is of UTC if it has no zone.
    :param max_age: seconds after which a read counts no more.
    """

    table: str
    name_column: str
    time_column: str
    max_age: float = 7 * 24 * 3600.0

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise SpecError(f"The max_age of query_log is {self.max_age}, not above 0 seconds.")

    def reads(self, catalog: Catalog, tables: Collection[str], now: datetime) -> dict[str, float]:
        """How often each of some tables has been read lately, their mean being 1; nothing if none of them has been.

        :param tables: ``namespace.name`` of each.
        :param now: with a zone.
        """
        by_name = {table.casefold(): table for table in tables}
        counts: Counter[str] = Counter()
        for name, count in self._counts(catalog.load_table(self.table), now - timedelta(seconds=self.max_age)).items():
            found = name.strip().casefold()
            while found not in by_name and "." in found:
                found = found.partition(".")[2]
            if found in by_name:
                counts[by_name[found]] += count
        return {table: counts[table] * len(tables) / counts.total() for table in tables} if counts else {}

    def _counts(self, log: Table, since: datetime) -> Counter[str]:
        from pyiceberg.expressions import GreaterThanOrEqual, Reference
        from pyiceberg.expressions.literals import literal

        lately = GreaterThanOrEqual(term=Reference(self.time_column), value=literal(since))
        counts: Counter[str] = Counter()
        for batch in log.scan(lately, selected_fields=(self.name_column,)).to_arrow_batch_reader():
            for each in batch.column(self.name_column).drop_null().value_counts():
                counts[each["values"].as_py()] += each["counts"].as_py()
        return counts
