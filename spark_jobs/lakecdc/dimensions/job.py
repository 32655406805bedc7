"""Tables of the versions of other tables' rows, kept from their history tables."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.contract.past import Scd2Options
from lakecdc.contract.report import TableReport
from lakecdc.dimensions.dimension import JOB, Dimension
from lakecdc.dimensions.versions import versions
from lakecdc.iceberg.definition import source_types
from lakecdc.ingest.change import Column
from lakecdc.maintain.rewrite import nothing
from lakecdc.maintain.rollback_history import named_history
from lakecdc.maintain.start_tag import start_tag
from lakecdc.moments.events import changes_of, touched_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot


@dataclass(frozen=True)
class _Events:
    """What a run takes in.

    :param changed: a change frame of all events of the keys that have new ones, or of all keys, held by Spark.
    :param new: how many events are new.
    :param everything: the dimension is made of these events alone.
    """

    changed: DataFrame
    new: int
    everything: bool


def scd2(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Bring the dimension of a table up to date.

    The versions of keys that have new events are told anew from all of their events, so that late ones find their
    place between those that are there.

    :raises InputError: the table has no history table or no dimension, one of them is another table's, or events have
        been removed from the history table.
    :raises ConflictError: another run has fed the dimension meanwhile.
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
        return nothing(table, "all events are taken in already", None, **facts)
    with start_tag(history, head, JOB, leased=False):
        found = _events(table, history, since, head, anew=emptied != dimension.emptied)
        if not (found.new or found.everything):
            return nothing(table, "all events are taken in already", None, **facts)
        made = versions(found.changed, emptied.events(history, head))
        facts |= {"events": found.new, "values_unknown": made.unknown}
        if options.dry_run:
            return nothing(table, "dry run: nothing was written", None, **facts, versions=made.rows.count())
        keys = None if found.everything else found.changed.select("key.*")
        written = dimension.write(made.rows, keys, history, head, emptied)
    facts |= {**written, "seconds": round(time.monotonic() - started, 3)}
    return TableReport(table.name, "done", metrics=facts)


def _opened(table: IcebergTable, options: Scd2Options) -> tuple[IcebergTable, Dimension]:
    history = named_history(table, options.history_tables.get(table.name))
    name = options.dimensions.get(table.name)
    if history is None or name is None:
        missing = "history_tables" if history is None else "dimensions"
        raise InputError(
            f"options.{missing} does not name one for it.",
            table=table.name,
            hint="Give each table its history table and the table of its versions.",
        )
    if not table.identifier_columns:
        raise InputError("It has no identifier fields, so that nobody knows what a row is.", table=table.name)
    return history, Dimension(table, name)


def _events(
    table: IcebergTable, history: IcebergTable, since: Snapshot | None, until: Snapshot, *, anew: bool
) -> _Events:
    columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
    everything = changes_of(history.read(until.id), table, columns)
    if since is None:
        held = everything.localCheckpoint()
        return _Events(held, held.count(), everything=True)
    with changes.between(history, since, until, key=()) as rows:
        new = rows.localCheckpoint()
    if not new.where(f"{changes.CHANGE_TYPE} = 'delete'").isEmpty():
        raise InputError(
            f"Events have been removed from the history table {history.name} since the last run.",
            table=table.name,
            hint="Name another table in options.dimensions, which is made of the events that are left.",
        )
    if anew:
        return _Events(everything.localCheckpoint(), new.count(), everything=True)
    touched = touched_keys(everything, changes_of(new, table, columns))
    held = everything.join(touched, everything["key"].eqNullSafe(touched["touched"]), "left_semi").localCheckpoint()
    return _Events(held, new.count(), everything=False)
