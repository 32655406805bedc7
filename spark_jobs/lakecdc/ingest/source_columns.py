"""Columns that the source has renamed or dropped: found by what the table remembers of the source's columns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg import definition
from lakecdc.ingest.column_numbers import Columns, renamed
from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.metadata import names
from lakecdc.runtime.failpoints import reach

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.batch import Batch


def properties(batch: Batch) -> dict[str, str]:
    """Return what a new table remembers."""
    found = batch.source.columns
    if not found or not _wanted(batch.target, found):
        return {}
    return {names.SOURCE_COLUMNS: json.dumps(found), **_key_property(batch, found)}


def follow(table: IcebergTable, batch: Batch) -> list[str]:
    """Rename what the source has renamed, and apply the target's policy to columns that are gone.

    :return: what was changed, for the report.
    :raises InputError: if the policy is to stop, or a column cannot be dropped; nothing has been changed then.
    """
    if batch.source.columns is None:
        return []
    known, pairs = remembered(table), moves(table, batch)
    moved = renamed(known, batch.source.columns, swapped=batch.source.columns_told is not None)
    anew = _made_anew(table, batch)
    gone = [name for name in known if name not in moved and (name not in batch.source.columns or name in anew)]
    dropped = _dropped(table, batch, gone, anew)
    changes = _rename(table, batch, pairs)
    if dropped:
        definition.drop_columns(table, dropped)
    return changes + [f"dropped {name}" for name in dropped]


def moves(table: IcebergTable, batch: Batch) -> dict[str, str]:
    """Columns of the table that a batch gives another name, by the one they have.

    :raises InputError: if one has to be followed and cannot be.
    """
    if batch.source.columns is None:
        return {}
    taken = {*table.column_names}
    exact = _pairs(table, batch, renamed(remembered(table), batch.source.columns, swapped=True))
    if batch.source.columns_told is not None:
        taken -= {*exact}
    pairs = {old: new for old, new in exact.items() if new not in taken}
    # rows that are replaced have the values of the names that they come with
    lost = set() if batch.commit.replaces else {*exact} - {*pairs}
    if lost:
        old = min(lost)
        raise full_load_needed(
            f"The source has renamed the column {old!r} to {exact[old]!r}, a name that a column still has which the "
            "source has dropped or renamed as well",
            table.name,
        )
    if batch.target.on_dropped_column == "keep":
        pairs |= {old: _free_name(table, batch, old) for old in _made_anew(table, batch).values()}
    return pairs


def _made_anew(table: IcebergTable, batch: Batch) -> dict[str, str]:
    """Return columns that the source has dropped and whose names it gave to new ones, with their names in the table.

    A table without a snapshot has no values of the old ones; a load of it that begins anew may number all columns anew.
    """
    if batch.commit.replaces or table.head() is None:
        return {}
    now = batch.source.columns or {}
    numbers = {*now.values()}
    names = {
        name: here
        for name, number in remembered(table).items()
        if number is not None and number not in numbers and now.get(name) is not None
        if (here := _in_table(batch.target, name)) and here in table.column_names
    }
    return names


def _free_name(table: IcebergTable, batch: Batch, name: str) -> str:
    """Return the name under which a dropped column stays that has to leave its own to a new one."""
    taken = {column.lower() for column in (*table.column_names, *(c.name for c in batch.columns))}
    names = (f"{name}_dropped{number or ''}" for number in itertools.count())
    return next(free for free in names if free.lower() not in taken)


def _pairs(table: IcebergTable, batch: Batch, moved: Mapping[str, str]) -> dict[str, str]:
    named = [(_in_table(batch.target, old), _in_table(batch.target, new)) for old, new in moved.items()]
    return {old: new for old, new in named if old and new and old != new and old in table.column_names}


def _rename(table: IcebergTable, batch: Batch, pairs: Mapping[str, str]) -> list[str]:
    if pairs:
        # where names change places, a run that is killed now must not do it again
        definition.rename_columns(table, pairs, {**_news(table, batch), names.VIEW_BEHIND: "true"})
        reach("after_rename")
    return [f"renamed {old} to {new}" for old, new in pairs.items()]


def _dropped(table: IcebergTable, batch: Batch, gone: Sequence[str], anew: Mapping[str, str]) -> list[str]:
    """Columns of the table that are to be dropped.

    :param gone: columns that the source has no more.
    :param anew: those of them whose names new columns have, with their names in the table.
    """
    if batch.target.on_dropped_column == "keep":
        return []
    present = {c.name for c in batch.columns} - {*anew.values()}
    here = [name for name in (_in_table(batch.target, n) for n in gone) if name in table.column_names]
    if here and batch.target.on_dropped_column == "stop":
        raise InputError(
            f"The source has dropped the columns {', '.join(here)}, and on_dropped_column is stop.",
            table=table.name,
            hint='Run once with "on_dropped_column": "keep" or "drop" in the target, or take the column back.',
        )
    # events of the batch that are older than the drop still fill it
    dropped = [name for name in here if name not in present]
    _check_unused(table, batch, dropped)
    return dropped


def remember(table: IcebergTable, batch: Batch) -> None:
    """Note the source's columns, if they are wanted and have changed."""
    news = _news(table, batch)
    if news:
        table.update_properties({**news})


def changed(table: IcebergTable, batch: Batch) -> bool:
    """Whether the source has columns that the table does not remember so, as far as they can be told without events."""
    return bool(_made_anew(table, batch) or (batch.source.columns_told is not None and _news(table, batch)))


def columns_at(table: IcebergTable, place: int) -> tuple[dict[str, int], int]:
    """Return the source's columns at a place of its log, as :class:`ColumnsTold` has told them.

    :return: number by name, empty if they are not known; and the place up to which the log has to be read at once,
        because the table's columns are those of that place already.
    """
    known: Columns = remembered(table)
    told = json.loads(table.properties.get(names.SOURCE_COLUMNS_BEFORE, "null"))
    ahead = told["end"] if told and place < told["end"] else 0
    if ahead:
        known = told["before"] if place == told["begin"] else {}
    found = {name: number for name, number in known.items() if number is not None}
    return (found if len(found) == len(known) else {}), ahead


def key_numbers(table: IcebergTable, target: Target) -> tuple[int, ...]:
    """Numbers of the source's columns that are the table's key; empty if they are not known."""
    noted = table.properties.get(names.SOURCE_KEY)
    if noted:
        return tuple(json.loads(noted))
    # of a table that an earlier release has made
    return _numbers_of(target, table.identifier_columns, remembered(table)) if target.keyed else ()


def _numbers_of(target: Target, key: Iterable[str], columns: Columns) -> tuple[int, ...]:
    """Numbers of key columns, by their names in the table; empty unless all have one."""
    here = {_in_table(target, name): number for name, number in columns.items()}
    found = [here.get(name) for name in key]
    numbers = tuple(number for number in found if number is not None)
    return numbers if len(numbers) == len(found) else ()


def _key_property(batch: Batch, columns: Columns) -> dict[str, str]:
    numbers = _numbers_of(batch.target, batch.key, columns)
    return {names.SOURCE_KEY: json.dumps(numbers)} if numbers else {}


def types_in_table(table: IcebergTable, target: Target, columns: Iterable[str]) -> dict[str, str]:
    """Return the Spark SQL type of each source column that the table has.

    :param columns: the source's names.
    """
    types = definition.source_types(table)
    named = {name: _in_table(target, name) for name in columns}
    return {name: types[there] for name, there in named.items() if there in types}


def left_out(table: IcebergTable, target: Target, columns: Mapping[str, int]) -> set[int]:
    """Numbers of the source's columns that the table does not have."""
    return {number for name, number in columns.items() if _in_table(target, name) not in table.column_names}


def _news(table: IcebergTable, batch: Batch) -> dict[str, str]:
    """Properties that tell the source's columns; empty if the table has them already, or they are not wanted."""
    now = batch.source.columns
    known = remembered(table)
    if now is None or not (known or _wanted(batch.target, now)):
        return {}
    present = {c.name for c in batch.columns}
    waiting = {n: number for n, number in known.items() if n not in now and _in_table(batch.target, n) in present}
    kept = {n: number if number is not None else known.get(n) for n, number in now.items()} | waiting
    key = _key_property(batch, kept)
    if [*kept.items()] == [*known.items()] and table.properties.items() >= key.items():
        return {}
    told = batch.source.columns_told
    before = {names.SOURCE_COLUMNS_BEFORE: json.dumps(asdict(told))} if told else {}
    return {names.SOURCE_COLUMNS: json.dumps(kept), **key, **before}


def remembered(table: IcebergTable) -> dict[str, int | None]:
    """Return the source's columns as the table has them from its last batch; empty if it has none."""
    return dict(json.loads(table.properties.get(names.SOURCE_COLUMNS, "{}")))


def _wanted(target: Target, found: Columns) -> bool:
    return target.on_dropped_column != "keep" or any(number is not None for number in found.values())


def _in_table(target: Target, name: str) -> str | None:
    """Return a source column's name in the table; None if something else stands there."""
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
            f"The source has dropped {', '.join(lost)}, by which the table is keyed or partitioned.",
            table=table.name,
            hint='Set "on_dropped_column": "keep".',
        )
