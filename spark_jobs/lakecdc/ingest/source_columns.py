"""Find columns that the source renamed or dropped, by the source columns recorded in the table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.column_numbers import Columns, renamed
from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.metadata import names
from lakecdc.runtime.failpoints import reach


def properties(batch: Batch) -> dict[str, str]:
    """Return the properties of a new table that record the source's columns."""
    columns = batch.source.columns
    if not columns or not _needed(batch.target, columns):
        return {}
    return {_own(batch, names.SOURCE_COLUMNS): json.dumps(columns), **_key_property(batch, columns)}


def _own(batch: Batch, name: str) -> str:
    return names.of_feed(name, batch.target.feed)


def follow(table: IcebergTable, batch: Batch) -> list[str]:
    """Rename columns as the source did, and apply the target's policy to dropped ones.

    :return: the changes, for the report.
    :raises InputError: the policy is to stop, or a column cannot be dropped; nothing is changed.
    """
    if batch.source.columns is None:
        return []
    known, pairs = remembered(table, batch.target.feed), moves(table, batch)
    moved = renamed(known, batch.source.columns, swapped=batch.source.column_history is not None)
    anew = _made_anew(table, batch)
    removed = [name for name in known if name not in moved and (name not in batch.source.columns or name in anew)]
    dropped = _dropped(table, batch, removed, anew)
    changes = _rename(table, batch, pairs)
    if dropped:
        definition.drop_columns(table, dropped)
    return changes + [f"dropped {name}" for name in dropped]


def moves(table: IcebergTable, batch: Batch) -> dict[str, str]:
    """Return the new name of each column that a batch renames; raise an InputError if a rename cannot be followed."""
    if batch.source.columns is None:
        return {}
    used = {*table.column_names}
    exact = _pairs(table, batch, renamed(remembered(table, batch.target.feed), batch.source.columns, swapped=True))
    if batch.source.column_history is not None:
        used -= {*exact}
    pairs = {old: new for old, new in exact.items() if new not in used}
    # replaced rows bring the values under their new names
    lost = set() if batch.commit.replaces else {*exact} - {*pairs}
    if lost:
        old = min(lost)
        raise full_load_needed(
            f"The source renamed the column {old!r} to {exact[old]!r}, the name of a column in the table that the "
            "source dropped or renamed too",
            table.name,
        )
    if batch.target.on_dropped_column == "keep":
        pairs |= {old: _free_name(table, batch, old) for old in _made_anew(table, batch).values()}
    return pairs


def _made_anew(table: IcebergTable, batch: Batch) -> dict[str, str]:
    """Return dropped source columns whose names new columns have, with their names in the table.

    A table without a snapshot has no values of the old ones; its next load may renumber all columns.
    """
    if batch.commit.replaces or table.head() is None:
        return {}
    now = batch.source.columns or {}
    numbers = {*now.values()}
    return {
        name: here
        for name, number in remembered(table, batch.target.feed).items()
        if number is not None and number not in numbers and now.get(name) is not None
        if (here := _in_table(batch.target, name)) and here in table.column_names
    }


def _free_name(table: IcebergTable, batch: Batch, name: str) -> str:
    """Return a new name for a dropped column whose name a new column has."""
    used = {column.lower() for column in (*table.column_names, *(c.name for c in batch.columns))}
    candidates = (f"{name}_dropped{number or ''}" for number in itertools.count())
    return next(free for free in candidates if free.lower() not in used)


def _pairs(table: IcebergTable, batch: Batch, moved: Mapping[str, str]) -> dict[str, str]:
    named = [(_in_table(batch.target, old), _in_table(batch.target, new)) for old, new in moved.items()]
    return {old: new for old, new in named if old and new and old != new and old in table.column_names}


def _rename(table: IcebergTable, batch: Batch, pairs: Mapping[str, str]) -> list[str]:
    if pairs:
        # names may be swapped: if the run is killed now, the next one must not swap them back
        definition.rename_columns(table, pairs, {**_news(table, batch), names.VIEW_BEHIND: "true"})
        reach("after_rename")
    return [f"renamed {old} to {new}" for old, new in pairs.items()]


def _dropped(table: IcebergTable, batch: Batch, removed: Sequence[str], anew: Mapping[str, str]) -> list[str]:
    """Return the columns to drop of those removed at the source; ``anew``: those whose names new columns have."""
    if batch.target.on_dropped_column == "keep":
        return []
    present = {c.name for c in batch.columns} - {*anew.values()}
    here = [name for name in (_in_table(batch.target, n) for n in removed) if name in table.column_names]
    if here and batch.target.on_dropped_column == "stop":
        raise InputError(
            f"The source dropped the columns {', '.join(here)}, and on_dropped_column is 'stop'.",
            table=table.name,
            hint='Run once with "on_dropped_column": "keep" or "drop" in the target, or restore the column.',
        )
    # events of the batch before the drop still fill it
    dropped = [name for name in here if name not in present]
    _check_unused(table, batch, dropped)
    return dropped


def remember(table: IcebergTable, batch: Batch) -> None:
    """Record the source's columns if they are needed and have changed."""
    news = _news(table, batch)
    if news:
        table.update_properties({**news})


def changed(table: IcebergTable, batch: Batch) -> bool:
    """Check whether the source's columns differ from the recorded ones, if that shows without events."""
    return bool(_made_anew(table, batch) or (batch.source.column_history is not None and _news(table, batch)))


def columns_at(table: IcebergTable, feed: str, place: int) -> tuple[dict[str, int], int]:
    """Return the source's columns at a place of its log, see :class:`~lakecdc.ingest.change.ColumnHistory`.

    :return: number by name, empty if unknown; and the place up to which the log must be read at once, because the table
        already has its columns.
    """
    known: Columns = remembered(table, feed)
    change = json.loads(table.properties.get(names.of_feed(names.SOURCE_COLUMNS_BEFORE, feed), "null"))
    ahead = change["end"] if change and place < change["end"] else 0
    if ahead:
        known = change["before"] if place == change["begin"] else {}
    numbered = {name: number for name, number in known.items() if number is not None}
    return (numbered if len(numbered) == len(known) else {}), ahead


def key_numbers(table: IcebergTable, feed: str) -> tuple[int, ...]:
    """Return the numbers of the source's columns that are the table's key; empty if unknown."""
    numbers = table.properties.get(names.of_feed(names.SOURCE_KEY, feed))
    return tuple(json.loads(numbers)) if numbers else ()


def _numbers_of(target: Target, key: Iterable[str], columns: Columns) -> tuple[int, ...]:
    """Return the numbers of key columns, given by their names in the table; empty unless all have one."""
    here = {_in_table(target, name): number for name, number in columns.items()}
    numbers = [here.get(name) for name in key]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else ()


def _key_property(batch: Batch, columns: Columns) -> dict[str, str]:
    numbers = _numbers_of(batch.target, batch.key, columns)
    return {_own(batch, names.SOURCE_KEY): json.dumps(numbers)} if numbers else {}


def types_in_table(table: IcebergTable, target: Target, columns: Iterable[str]) -> dict[str, str]:
    """Return the table's Spark SQL type of each of the source's columns that it has."""
    types = definition.source_types(table)
    named = {name: _in_table(target, name) for name in columns}
    return {name: types[there] for name, there in named.items() if there in types}


def left_out(table: IcebergTable, target: Target, columns: Mapping[str, int]) -> set[int]:
    """Return the numbers of the source's columns that the table lacks."""
    return {number for name, number in columns.items() if _in_table(target, name) not in table.column_names}


def _news(table: IcebergTable, batch: Batch) -> dict[str, str]:
    """Return properties that record the source's columns; empty if the table has them, or they are not needed."""
    now = batch.source.columns
    known = remembered(table, batch.target.feed)
    if now is None or not (known or _needed(batch.target, now)):
        return {}
    present = {c.name for c in batch.columns}
    waiting = {n: number for n, number in known.items() if n not in now and _in_table(batch.target, n) in present}
    numbers = {n: number if number is not None else known.get(n) for n, number in now.items()} | waiting
    key = _key_property(batch, numbers)
    if [*numbers.items()] == [*known.items()] and table.properties.items() >= key.items():
        return {}
    change = batch.source.column_history
    before = {_own(batch, names.SOURCE_COLUMNS_BEFORE): json.dumps(asdict(change))} if change else {}
    return {_own(batch, names.SOURCE_COLUMNS): json.dumps(numbers), **key, **before}


def remembered(table: IcebergTable, feed: str) -> dict[str, int | None]:
    """Return the columns of a feed's source as of its last batch; empty if the table records none."""
    return dict(json.loads(table.properties.get(names.of_feed(names.SOURCE_COLUMNS, feed), "{}")))


def _needed(target: Target, columns: Columns) -> bool:
    return target.on_dropped_column != "keep" or any(number is not None for number in columns.values())


def _in_table(target: Target, name: str) -> str | None:
    """Return a source column's name in the table; None if a computed column has it."""
    if target.clean is None:
        return name
    renamed = target.clean.renamed(name)
    return None if renamed in target.clean.compute else renamed


def _check_unused(table: IcebergTable, batch: Batch, dropped: list[str]) -> None:
    specs = definition.live_specs(table)
    used = {*batch.key, *(c for spec in specs for c in definition.spec_columns(table, spec))}
    lost = sorted(used & set(dropped))
    if lost:
        raise InputError(
            f"The source dropped {', '.join(lost)}, by which the table is keyed or partitioned.",
            table=table.name,
            hint='Set "on_dropped_column": "keep".',
        )
