"""A table of one run: its position, and its columns as the log changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark import Accumulator

from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest import source_columns
from lakecdc.ingest.change import Column
from lakecdc.ingest.sources.log import feed as log_feed
from lakecdc.ingest.sources.mysql.catalog import SourceTable, described, target_columns
from lakecdc.ingest.sources.mysql.reading import Relation, Summary


@dataclass
class Feed(log_feed.Feed[SourceTable]):
    """A table during a run.

    :param stop: place where the next batch must end, because the target already has its columns; else 0.
    :param zero_dates: number of zero dates in the log.
    :param loaded_zero_dates: numbers of zero dates in each part of a full load, counted by the tasks that write it, or
        by those that read it for Spark, which start over.
    :param numbers: numbers of the source's columns at the position, in order; empty if unknown.
    :param key_numbers: numbers of the key's columns, which never change; empty if only their names are known.
    :param left_out: numbers of columns that the target never had.
    :param types: Spark SQL types of the target's columns at the position, by the source's names; None until read.
    """

    stop: int = 0
    zero_dates: int = 0
    loaded_zero_dates: list[tuple[Accumulator[int], Accumulator[int]]] = field(default_factory=list)
    numbers: Mapping[str, int] = field(default_factory=dict)
    key_numbers: tuple[int, ...] = ()
    left_out: set[int] = field(default_factory=set)
    types: Mapping[str, str] | None = None
    _used: int = 0

    @property
    def facts(self) -> dict[str, int]:
        loaded = sum(by_spark.value or by_tasks.value for by_tasks, by_spark in self.loaded_zero_dates)
        zero_dates = self.zero_dates + loaded
        return {"zero_dates": zero_dates} if zero_dates else {}

    @property
    def numbers_reached(self) -> Mapping[str, int]:
        """The numbers of the source's columns after the parked rounds."""
        if self.numbers:
            for parked in reversed(self.parked):
                if numbers := Summary.from_json(parked.summary).columns.get(parked.relation):
                    return numbers
        return self.numbers

    @property
    def key(self) -> tuple[str, ...]:
        names = {of: name for name, of in self.numbers.items()}
        return tuple(names[of] for of in self.key_numbers) if self.key_numbers else self.table.key

    @property
    def source_columns(self) -> dict[str, int | None]:
        return {**self.numbers} if self.numbers else dict.fromkeys(c.name for c in self.columns)

    def remember(self, target: IcebergTable | None) -> None:
        """Load what the target's table records about the source's columns at its position.

        :raises InputError: the source table has another key, or its columns were renamed during the load.
        """
        feed = self.table.target.feed
        if target is not None and self.position is None:
            # created by a load that has committed nothing; its columns may no longer be the source's
            self._used = max((number or 0 for number in source_columns.remembered(target, feed).values()), default=0)
        elif target is not None:
            self.numbers, ahead = source_columns.columns_at(target, feed, self.at)
            self.left_out = source_columns.left_out(target, self.table.target, self.numbers)
            self.key_numbers = source_columns.key_numbers(target, feed) if self.numbers else ()
            self.stop = ahead
        there = {column.name for column in self.table.columns}
        missing = [name for name in self.numbers if self.load and name not in there]
        if missing:
            raise self.table.full_load_needed(
                f"The column {missing[0]!r} of {self.table.label} was renamed or dropped while it was being loaded"
            )
        known = {*self.key_numbers} <= {*self.numbers.values()} and len(self.key_numbers) == len(self.table.key)
        if self.key_numbers and not known and self.table.target.keyed:
            raise self.another_key()
        if self.numbers and not (self.key_numbers and known):
            self._number_key()
        if target is not None and self.numbers:
            self.target_types(lambda: target)

    def derive_columns(self) -> None:
        """Derive the target's columns from the source's.

        :raises InputError: the source's columns cannot feed it.
        """
        self.columns = self._columns((), altered=True)

    def target_types(self, target: Callable[[], IcebergTable | None]) -> Mapping[str, str]:
        """Return the types of the target's columns at the position, by the source's names."""
        if self.types is None:
            table, columns = target(), {column.name: column.type for column in self.columns}
            names = self.numbers or columns
            self.types = columns if table is None else source_columns.types_in_table(table, self.table.target, names)
        return self.types

    def begin(self) -> None:
        """Assign numbers to the columns of a full load."""
        self.numbers = {column.name: number for number, column in enumerate(self.table.columns, self._used + 1)}
        self._number_key()

    def _number_key(self) -> None:
        """Look up the numbers of the key's columns by their current names."""
        missing = [name for name in self.table.key if name not in self.numbers]
        if missing:
            raise self.table.full_load_needed(
                f"The key of {self.table.label} has the column {missing[0]!r}, which the table was not loaded with: it "
                "was renamed, or the key was changed"
            )
        self.key_numbers = tuple(self.numbers[name] for name in self.table.key)

    def take(self, numbers: Mapping[str, int], relations: Sequence[Relation], altered: bool, reached: bool) -> None:
        """Take the columns of a batch.

        :param numbers: of the columns at its end.
        :param relations: with the names at its end.
        :param altered: statements have changed the table.
        :param reached: the log ends there, so the server has the same names.
        :raises InputError: the columns cannot feed the target.
        """
        if self.numbers and not {*self.key_numbers} <= {*numbers.values()}:
            raise self.another_key()
        if self.numbers:
            self.numbers = numbers
        if reached and {*self.key} != {*self.table.key}:
            if self.table.target.keyed:
                raise self.another_key()
            self._number_key()
        if altered:
            self.types = None
        if altered or relations:
            self.columns = self._columns(relations, altered)

    def _columns(self, relations: Sequence[Relation], altered: bool) -> tuple[Column, ...]:
        now = described(self.table)
        if not self.numbers:
            return target_columns(self.table, now if altered else relations[-1].columns, self.key)
        # the server may have columns that are later in the log, and lack columns that are earlier in it
        there = {column[0]: column for column in now}
        by_name = {**there, **{column[0]: column for relation in relations for column in relation.columns}}
        names = [name for name, of in self.numbers.items() if name in there or of not in self.left_out]
        return target_columns(self.table, [by_name[name] for name in names if name in by_name], self.key)
