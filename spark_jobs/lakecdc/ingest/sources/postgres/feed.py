"""A table of one run: its position, and its columns as the log changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakecdc.ingest.change import Column
from lakecdc.ingest.column_numbers import Columns, ascend, identified, places
from lakecdc.ingest.formats.text_columns import TextColumn
from lakecdc.ingest.sources.database import defaults
from lakecdc.ingest.sources.log import feed as log_feed
from lakecdc.ingest.sources.postgres.catalog import SourceTable, column_numbers, missing_values
from lakecdc.ingest.sources.postgres.connect import Session
from lakecdc.ingest.sources.postgres.reading import Relation
from lakecdc.ingest.sources.postgres.storage import StorageWatch
from lakecdc.ingest.sources.postgres.types import TypeCatalog


@dataclass
class Feed(log_feed.Feed[SourceTable]):
    """A table during a run; its number in rounds is the oid of the source table.

    :param numbers: numbers of the source's columns when the log was last read.
    :param target_key: numbers of the target's key; empty if unknown.
    :param storage: compares the storage of the source's rows; None outside of ingestion.
    """

    numbers: Mapping[str, int | None] = field(default_factory=dict)
    target_key: tuple[int, ...] = ()
    storage: StorageWatch | None = None

    def __post_init__(self) -> None:
        of = self.table.numbers
        self.key_numbers = tuple(number for name in self.table.key if (number := of[name]) is not None)
        if self.target_key and {*self.target_key} != {*self.key_numbers}:
            raise self.another_key()

    @property
    def source_columns(self) -> dict[str, int | None]:
        return {column.name: self.numbers.get(column.name) for column in self.columns}

    @property
    def remembered(self) -> dict[str, Any] | None:
        return self.storage.encode() if self.storage else None


def described_numbers(session: Session, feed: Feed, relations: Sequence[Relation]) -> list[dict[str, int | None]]:
    """Return the columns' numbers in each description; raise an :class:`InputError` if their order is inconsistent."""
    catalog = column_numbers(session, feed.table.oid) if relations else {}
    all_numbers = [identified([c.name for c in r.columns], feed.numbers, catalog) for r in relations]
    for relation, numbers in zip(relations[:-1], all_numbers[:-1], strict=True):
        _guess(relation, numbers, relations[-1], all_numbers[-1])
    if not all(map(ascend, all_numbers)):
        raise feed.table.full_load_needed(
            f"The log does not show which names the columns of {feed.table.label} had before they were altered"
        )
    return all_numbers


def names_now(numbers: Sequence[Columns]) -> list[dict[str, str]]:
    """Return the new names, at the end of a round, of columns renamed after each description.

    :param numbers: of the columns in each description.
    :return: an empty name is a dropped column whose name a new column has.
    """
    last = numbers[-1]
    now = {number: name for name, number in last.items() if number is not None}
    return [
        {n: now.get(i, "") for n, i in of.items() if i is not None and (now[i] not in of if i in now else n in last)}
        for of in numbers
    ]


def settle_quiet_names(feed: Feed, to: int) -> bool:
    """Use the catalog's names for a table without events up to an LSN if a new column reuses a dropped name."""
    now = feed.table.numbers
    anew = [n for n, i in feed.numbers.items() if i is not None and now.get(n, i) != i and i not in now.values()]
    if not anew or feed.storage is None or to < feed.storage.read_at:
        return False
    feed.numbers = now
    return True


def without_new_names(session: Session, feed: Feed, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns without those that only the catalog has renamed: they are not new."""
    if not feed.numbers or all(c.name in feed.numbers for c in columns):
        return columns
    catalog = column_numbers(session, feed.table.oid)
    known = {number: name for name, number in feed.numbers.items() if number is not None}
    return tuple(c for c in columns if known.get(catalog.get(c.name) or 0, c.name) == c.name)


def key_names(feed: Feed, relations: Sequence[Relation], numbers: Sequence[Columns]) -> tuple[str, ...]:
    """Return the names of the key's columns at the end of a round.

    :param relations: descriptions of the table in the round.
    :param numbers: of the columns in each of them.
    :raises InputError: a description lacks the key, or identifies rows by other columns.
    """
    for relation, of in zip(relations, numbers, strict=True):
        there = places(of, feed.key_numbers)
        if len(there) < len(feed.key_numbers) or relation.key != there:
            raise feed.table.full_load_needed(
                f"The log does not show which columns were the key of {feed.table.label} before they were renamed"
            )
    last = numbers[-1] if numbers else feed.numbers
    names = {number: name for name, number in last.items()}
    return tuple(names.get(of, name) for of, name in zip(feed.key_numbers, feed.table.key, strict=True))


def with_fill(session: Session, feed: Feed, types: TypeCatalog) -> tuple[Column, ...]:
    """Return the columns with the values that older rows have for them."""
    older = missing_values(session, feed.table.oid)
    of = [TextColumn(c.name, types.base_name(older[c.name][1]), c.type) for c in feed.columns if c.name in older]
    texts = {name: text for name, (text, _) in older.items()}
    fills = defaults(of, texts, types.texts)
    return tuple(replace(c, fill=fills.get(c.name)) for c in feed.columns)


def _guess(relation: Relation, numbers: dict[str, int | None], last: Relation, known: Mapping[str, int | None]) -> None:
    """Give columns unknown to table and catalog the number of the last column of the same place and type.

    They have an intermediate name, between two renames.
    """
    if len(relation.columns) != len(last.columns):
        return
    for column, later in zip(relation.columns, last.columns, strict=True):
        number = known[later.name]
        if numbers[column.name] is None and column.type_oid == later.type_oid and number not in numbers.values():
            numbers[column.name] = number
