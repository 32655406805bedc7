"""Columns that the source has dropped: found by what the table remembers of the source's columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg import definition
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.change import TableBatch

Columns = Mapping[str, int | None]


def properties(batch: TableBatch) -> dict[str, str]:
    """What a new table remembers."""
    found = batch.source_columns
    return {names.SOURCE_COLUMNS: json.dumps(found)} if found and _wanted(batch.target, found) else {}


def follow(table: IcebergTable, batch: TableBatch) -> list[str]:
    """Apply the target's policy to columns that are gone.

    :return: what was changed, for the report.
    :raises InputError: if the policy is to stop, or a column cannot be dropped; nothing has been changed then.
    """
    if batch.source_columns is None or batch.target.on_dropped_column == "keep":
        return []
    present = {c.name for c in batch.columns}
    gone = [n for n in remembered(table) if n not in batch.source_columns]
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
    if dropped:
        definition.drop_columns(table, dropped)
    return [f"dropped {name}" for name in dropped]


def remember(table: IcebergTable, batch: TableBatch) -> None:
    """Note the source's columns, if they are wanted and have changed."""
    now = batch.source_columns
    known = remembered(table)
    if now is None or not (known or _wanted(batch.target, now)):
        return
    present = {c.name for c in batch.columns}
    waiting = {n: number for n, number in known.items() if n not in now and _in_table(batch.target, n) in present}
    kept = {n: number if number is not None else known.get(n) for n, number in now.items()} | waiting
    if kept != known:
        table.update_properties({names.SOURCE_COLUMNS: json.dumps(kept)})


def remembered(table: IcebergTable) -> dict[str, int | None]:
    """The source's columns as the table has them from its last batch; empty if it has none."""
    return dict(json.loads(table.properties.get(names.SOURCE_COLUMNS, "{}")))


def _wanted(target: Target, found: Columns) -> bool:
    return target.on_dropped_column != "keep" or any(number is not None for number in found.values())


def _in_table(target: Target, name: str) -> str | None:
    """A source column's name in the table; None if something else stands there."""
    if target.clean is None:
        return name
    renamed = target.clean.renamed(name)
    return None if renamed in target.clean.compute else renamed


def _check_unused(table: IcebergTable, batch: TableBatch, dropped: list[str]) -> None:
    specs = definition.live_specs(table)
    used = {*batch.key, *(c for spec in specs for c in definition.spec_columns(table, spec))}
    lost = sorted(used & set(dropped))
    if lost:
        raise InputError(
            f"The source has dropped {', '.join(lost)}, by which the table is keyed or partitioned.",
            table=table.name,
            hint='Set "on_dropped_column": "keep".',
        )
