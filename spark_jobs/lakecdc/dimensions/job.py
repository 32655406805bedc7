"""The job that maintains tables of row versions from history tables."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.contract.past import Scd2Options
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.dimensions.dimension import JOB, Dimension
from lakecdc.dimensions.versions import versions
from lakecdc.iceberg.definition import source_types
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.ingest.api import Column
from lakecdc.maintain.reports import nothing, seconds_since
from lakecdc.maintain.rollback_history import named_history
from lakecdc.maintain.start_tag import start_tag
from lakecdc.moments.events import changes_of, touched_keys


@dataclass(frozen=True)
class _Events:
    """Events that a run includes.

    :param changed: a change frame of all events of the keys with new ones, or of all keys, checkpointed by Spark.
    :param new: number of new events.
    :param everything: these are all events of the dimension.
    """

    changed: DataFrame
    new: int
    everything: bool


def scd2(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Bring the dimension of a table up to date.

    The versions of keys with new events are rebuilt from all their events, so that late events take their place among
    the others.

    :raises InputError: the table has no history table or no dimension, one of them belongs to another table, or events
        were removed from the history table.
    :raises ConflictError: another run updated the dimension meanwhile.
    """
    options, started = spec.options, time.monotonic()
    assert isinstance(options, Scd2Options)
    history, dimension = _opened(table.refresh(), options)
    head = history.refresh().head()
    if head is None:
        return nothing(table, f"the history table {history.name} has no snapshot")
    emptied, since = dimension.emptied.by_now(table, history), dimension.since(history)
    facts: dict[str, Any] = {"since": str(since.id) if since else None, "until": str(head.id)}
    if since is not None and since.id == head.id and emptied == dimension.emptied:
        return nothing(table, "all events are already included", None, **facts)
    with start_tag(history, head, JOB, leased=False):
        events = _events(table, history, since, head, anew=emptied != dimension.emptied)
        if not (events.new or events.everything):
            return nothing(table, "all events are already included", None, **facts)
        result = versions(events.changed, emptied.events(history, head))
        facts |= {"events": events.new, "values_unknown": result.unknown}
        if options.dry_run:
            return nothing(table, "dry run: nothing was written", None, **facts, versions=result.rows.count())
        keys = None if events.everything else events.changed.select("key.*")
        written = dimension.write(result.rows, keys, history, head, emptied)
    facts |= {**written, "seconds": seconds_since(started)}
    return TableReport(table.name, "done", metrics=facts)


def _opened(table: IcebergTable, options: Scd2Options) -> tuple[IcebergTable, Dimension]:
    history = named_history(table, options.history_tables.get(table.name))
    name = options.dimensions.get(table.name)
    if history is None or name is None:
        missing = "history_tables" if history is None else "dimensions"
        raise InputError(
            f"options.{missing} does not name a table for it.",
            table=table.name,
            hint="Give each table its history table and the table of its versions.",
        )
    if not table.identifier_columns:
        raise InputError("It has no identifier fields; scd2 needs them to match versions of a row.", table=table.name)
    return history, Dimension(table, name)


def _events(
    table: IcebergTable, history: IcebergTable, since: Snapshot | None, until: Snapshot, *, anew: bool
) -> _Events:
    columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
    everything = changes_of(history.read(until.id), table, columns)
    if since is None:
        stored = everything.localCheckpoint()
        return _Events(stored, stored.count(), everything=True)
    with changes.between(history, since, until, key=()) as rows:
        new = rows.localCheckpoint()
    if not new.where(f"{changes.CHANGE_TYPE} = 'delete'").isEmpty():
        raise InputError(
            f"Events were removed from the history table {history.name} since the last run.",
            table=table.name,
            hint="Name another table in options.dimensions, which is built from the remaining events.",
        )
    if anew:
        return _Events(everything.localCheckpoint(), new.count(), everything=True)
    touched = touched_keys(everything, changes_of(new, table, columns))
    stored = everything.join(touched, everything["key"].eqNullSafe(touched["touched"]), "left_semi").localCheckpoint()
    return _Events(stored, new.count(), everything=False)
