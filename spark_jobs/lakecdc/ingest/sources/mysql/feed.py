"""A table of one run: its columns, how far it is, and what the log says of its columns meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.ingest import source_columns
from lakecdc.ingest.change import Column, ColumnsTold
from lakecdc.ingest.sources.database import another_key, full_load_needed
from lakecdc.ingest.sources.mysql.catalog import SourceTable, described, target_columns
from lakecdc.ingest.sources.mysql.decoder import Relation
from lakecdc.ingest.sources.mysql.load import Progress
from lakecdc.ingest.sources.mysql.place import Place, place_of
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass
class Feed:
    """A table during a run.

    :param number: of the table in this run.
    :param columns: the target's columns as last seen.
    :param position: where the target stands; None before its full load is applied.
    :param stop: place where a batch of an interrupted run ended; the next one must end there too.
    :param failed: it takes no more batches.
    :param numbers: of the source's columns at the position, in their order; empty if they are not known.
    :param key_numbers: of the key's columns, which they keep; empty if these are known by their names alone.
    :param left_out: numbers of columns that the target has never had.
    :param chunks: of its full load that this run has read.
    :param types: Spark SQL types of the target's columns at the position, by the source's names; None until they are
        read.
    """

    number: int
    table: SourceTable
    columns: tuple[Column, ...]
    position: Position | None
    stop: int = 0
    zero_dates: int = 0
    failed: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)
    key_numbers: tuple[int, ...] = ()
    left_out: set[int] = field(default_factory=set)
    chunks: int = 0
    types: Mapping[str, str] | None = None
    _used: int = 0

    @property
    def loading(self) -> bool:
        """Whether its full load has not ended."""
        return self.position is None or self.progress is not None

    @property
    def progress(self) -> Progress | None:
        """How far a full load has come that was begun and has not ended."""
        return Progress.of(self.position.offsets) if self.position else None

    @property
    def ahead(self) -> int:
        """Up to where the log may tell of changes that rows were read with already; 0 once it is past that."""
        loaded = int(self.position.offsets.get("loaded", 0)) if self.position else 0
        return loaded if self.position and loaded > self.place.number else 0

    @property
    def place(self) -> Place:
        """The position; every transaction before it is in the table."""
        assert self.position is not None
        return place_of(self.position.offsets)

    @property
    def key(self) -> tuple[str, ...]:
        """The key's columns, under their names at the position."""
        names = {of: name for name, of in self.numbers.items()}
        return tuple(names[of] for of in self.key_numbers) if self.key_numbers else self.table.key

    @property
    def source_columns(self) -> dict[str, int | None]:
        """The source's columns for the table to remember."""
        return {**self.numbers} if self.numbers else dict.fromkeys(c.name for c in self.columns)

    def remember(self, target: IcebergTable | None) -> None:
        """Take over what the target's table knows of the source's columns at its position.

        :raises InputError: if the source's columns cannot feed it.
        """
        if target is not None and self.position is None:
            # made by a load that has committed nothing; its columns need not be the source's any more
            self._used = max((number or 0 for number in source_columns.remembered(target).values()), default=0)
        elif target is not None:
            self.numbers, ahead = source_columns.columns_at(target, self.place.number)
            self.left_out = source_columns.left_out(target, self.table.target, self.numbers)
            self.key_numbers = source_columns.key_numbers(target, self.table.target) if self.numbers else ()
            self.stop = max(self.stop, ahead)
        there = {column.name for column in self.table.columns}
        gone = [name for name in self.numbers if self.progress and name not in there]
        if gone:
            raise full_load_needed(
                f"The column {gone[0]!r} of {self.table.label} was renamed or dropped while it was being loaded",
                self.table.target.table,
            )
        known = {*self.key_numbers} <= {*self.numbers.values()} and len(self.key_numbers) == len(self.table.key)
        if self.key_numbers and not known and self.table.target.keyed:
            raise self._another_key()
        if self.numbers and not (self.key_numbers and known):
            self._number_key()
        self.columns = self._columns((), altered=True)
        if target is not None and self.position is not None:
            self.target_types(lambda: target)

    def target_types(self, target: Callable[[], IcebergTable | None]) -> Mapping[str, str]:
        """Return the types of the target's columns at the position, by the source's names.

        :param target: opens its table, if there is one.
        """
        if self.types is None:
            table, columns = target(), {column.name: column.type for column in self.columns}
            names = self.numbers or columns
            self.types = columns if table is None else source_columns.types_in_table(table, self.table.target, names)
        return self.types

    def begin(self) -> None:
        """Give the columns of a full load their numbers."""
        self.numbers = {column.name: number for number, column in enumerate(self.table.columns, self._used + 1)}
        self._number_key()

    def _number_key(self) -> None:
        """Tell the key's columns by their numbers, which are known by their names of now."""
        missing = [name for name in self.table.key if name not in self.numbers]
        if missing:
            raise full_load_needed(
                f"The key of {self.table.label} has the column {missing[0]!r}, which the table was not loaded with: it "
                "was renamed, or another key was made",
                self.table.target.table,
            )
        self.key_numbers = tuple(self.numbers[name] for name in self.table.key)

    def _another_key(self) -> InputError:
        return another_key(self.table.label, self.table.key, self.table.target.table)

    def take(self, numbers: Mapping[str, int], relations: Sequence[Relation], altered: bool, reached: bool) -> None:
        """Take over the columns of a batch.

        :param numbers: of the columns at its end.
        :param relations: under the names of its end.
        :param altered: statements have changed the table.
        :param reached: the log ends there, so that the server has no other names for them.
        :raises InputError: if they cannot feed the target.
        """
        if self.numbers and not {*self.key_numbers} <= {*numbers.values()}:
            raise self._another_key()
        if self.numbers:
            self.numbers = numbers
        if reached and {*self.key} != {*self.table.key}:
            if self.table.target.keyed:
                raise self._another_key()
            self._number_key()
        if altered:
            self.types = None
        if altered or relations:
            self.columns = self._columns(relations, altered)

    def told(self, before: Mapping[str, int], to: Position) -> ColumnsTold | None:
        """What the log tells of the columns in a batch.

        :param before: their numbers where it begins.
        :param to: where it ends.
        """
        return ColumnsTold(before, self.place.number, place_of(to.offsets).number) if before else None

    def _columns(self, relations: Sequence[Relation], altered: bool) -> tuple[Column, ...]:
        now = described(self.table)
        if not self.numbers:
            return target_columns(self.table, now if altered else relations[-1].columns, self.key)
        # the server may tell columns that the log is still to come to, and not know those that it has left behind
        there = {column[0]: column for column in now}
        found = {**there, **{column[0]: column for relation in relations for column in relation.columns}}
        wanted = [name for name, of in self.numbers.items() if name in there or of not in self.left_out]
        return target_columns(self.table, [found[name] for name in wanted if name in found], self.key)
