"""The job that maintains tables of row versions from history tables."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc import changes
from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.past import Scd2Options
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.dimensions.versions import IS_CURRENT, OWN, Emptied, versions
from lakecdc.export.destination import position_at
from lakecdc.iceberg import scratch
from lakecdc.iceberg.definition import TableDefinition, refuse_merged, source_types
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.ingest.api import Column, changes_of, position_summary
from lakecdc.maintain.reports import nothing, seconds_since
from lakecdc.maintain.rollback import named_history
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import names
from lakecdc.metadata.exports import exported_snapshot
from lakecdc.metadata.positions import Position
from lakecdc.moments.events import touched_keys
from lakecdc.moments.table import DerivedTable
from lakecdc.runtime.failpoints import reach
from lakecdc.sql import quoted_column, temporary_view

JOB = "scd2"


def scd2(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Bring the dimension of a table up to date.

    The versions of keys with new events are rebuilt from all events of these keys, so that late events are in order.

    :raises InputError: the table has no history table or no dimension, one of them belongs to another table, or events
        were removed from the history table.
    :raises ConflictError: another run updated the dimension meanwhile.
    """
    options, started = spec.options_as(Scd2Options), time.monotonic()
    history, dimension = _opened(table.refresh(), options)
    head = history.refresh().head()
    if head is None:
        return nothing(table, f"the history table {history.name} has no snapshot")
    emptied, since = dimension.emptied.with_later(table, history), dimension.since(history)
    facts: dict[str, Any] = {"since": str(since.id) if since else None, "until": str(head.id)}
    if since is not None and since.id == head.id and emptied == dimension.emptied:
        return nothing(table, "all events are already included", None, **facts)
    with start_tag(history, head, JOB, leased=False):
        everything = since is None or emptied != dimension.emptied
        events, new = _events(table, history, since, head, everything=everything)
        if not (new or everything):
            return nothing(table, "all events are already included", None, **facts)
        rows, unknown = versions(events, emptied.events(history, head))
        facts |= {"events": new, "values_unknown": unknown}
        if options.dry_run:
            return nothing(table, "dry run: nothing was written", None, **facts, versions=rows.count())
        keys = None if everything else events.select("key.*")
        written = dimension.write(rows, keys, history, head, emptied)
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
    refuse_merged(table, "a single event is not a version of a row")
    return history, Dimension(table, name)


def _events(
    table: IcebergTable, history: IcebergTable, since: Snapshot | None, until: Snapshot, *, everything: bool
) -> tuple[DataFrame, int]:
    """Return all events of keys with new events, as a checkpointed change frame, and the number of new events."""
    columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
    key = table.identifier_columns
    stored = changes_of(history.read(until.id), columns, key)
    if since is None:
        stored = stored.localCheckpoint()
        return stored, stored.count()
    with changes.between(history, since, until, key=()) as rows:
        new = rows.localCheckpoint()
    if not new.where(f"{changes.CHANGE_TYPE} = 'delete'").isEmpty():
        raise InputError(
            f"Events were removed from the history table {history.name} since the last run.",
            table=table.name,
            hint="Name a new table in options.dimensions: it is built from the remaining events.",
        )
    if not everything:
        touched = touched_keys(stored, changes_of(new, columns, key))
        stored = stored.join(touched, stored["key"].eqNullSafe(touched["touched"]), "left_semi")
    return stored.localCheckpoint(), new.count()


class Dimension(DerivedTable):
    """The table with the versions of a table's rows; ``emptied`` is what its position records of that."""

    def __init__(self, table: IcebergTable, name: str) -> None:
        super().__init__(table, name)
        self._columns = source_types(table)
        if reserved := set(OWN) & set(self._columns):
            raise InputError(f"The column name {min(reserved)!r} is reserved.", table=table.name, hint="Rename it.")
        if self._table is not None and not set(OWN) <= set(self._table.column_names):
            raise InputError(
                f"The table {name} is not a dimension: it needs the columns {', '.join(OWN)}.",
                table=table.name,
                hint="Name a dimension, or a table that does not exist: the job creates it.",
            )
        self.emptied = Emptied.of(self._position)

    def since(self, history: IcebergTable) -> Snapshot | None:
        """Return the history table's snapshot whose events are included, unless it has expired."""
        known = exported_snapshot(self._position, history.name, history.uuid, self.name)
        return history.snapshot(known) if known is not None else None

    def write(
        self, rows: DataFrame, keys: DataFrame | None, history: IcebergTable, until: Snapshot, emptied: Emptied
    ) -> dict[str, Any]:
        """Replace the versions of some keys, and return numbers for the report.

        :param keys: key columns of every key to replace, including keys without versions; None replaces all versions.
        :param emptied: what ended versions without an event.
        :raises ConflictError: another writer committed meanwhile; nothing is published.
        """
        columns, key = [*self._columns.items(), *OWN.items()], self._source.identifier_columns
        settings = {"format-version": str(self._source.format_version), "write.delete.mode": "merge-on-read"}
        # the time is not part of the identifier: some sources do not provide it
        required = [(name, kind, name in key) for name, kind in columns]
        table = self.prepared(TableDefinition(required, properties=settings))
        position = emptied.recorded_in(position_at(history, until))
        there = {name: F.col("row")[name] for name in self._columns} | {name: F.col(name) for name in OWN}
        flat = rows.select(*columns_of(table, there)).localCheckpoint()
        base = table.head()
        if base is None:
            snapshot, _ = self.publish(table, flat, position, {names.JOB: JOB})
        else:
            snapshot = self._replace(table, base, flat, position, keys)
        counts = flat.agg(F.count(F.lit(1)), F.count_if(IS_CURRENT)).first()
        assert counts is not None
        return {"dimension": self.name, "snapshot": str(snapshot.id), "versions": counts[0], "current": counts[1]}

    def _replace(
        self, table: IcebergTable, base: Snapshot, flat: DataFrame, position: Position, keys: DataFrame | None
    ) -> Snapshot:
        with scratch.branch(table, base) as branch, temporary_view(flat) as given:
            target = scratch.sql_name(table, branch)
            _delete(table.spark, target, keys)
            table.spark.sql(f"INSERT INTO {target} SELECT * FROM {given}")
            reach("before_commit")
            note = {**position_summary(position), names.JOB: JOB}
            try:
                return scratch.publish(table, branch, base, self.fence(), note)
            except scratch.HeadMovedError as error:
                raise ConflictError(
                    f"Another writer committed to the dimension {self.name} meanwhile.",
                    table=self._source.name,
                    hint="Nothing was published; run again.",
                ) from error


def _delete(spark: SparkSession, target: str, keys: DataFrame | None) -> None:
    if keys is None:
        spark.sql(f"DELETE FROM {target}")
        return
    with temporary_view(keys.distinct().localCheckpoint()) as given:
        same = " AND ".join(f"t.{name} = s.{name}" for name in map(quoted_column, keys.columns))
        spark.sql(f"DELETE FROM {target} t WHERE EXISTS (SELECT 1 FROM {given} s WHERE {same})")
