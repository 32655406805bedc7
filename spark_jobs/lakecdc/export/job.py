"""The job that exports a table's changes since its last export."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from lakecdc.changes import CHANGE_TYPE, between, bound
from lakecdc.contract.errors import InputError
from lakecdc.contract.past import ExportChangesOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.export.destination import JOB, Export, TableDestination
from lakecdc.export.steps import steps
from lakecdc.export.to_folder import FolderDestination
from lakecdc.iceberg.refs import put_consumer
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.key_search.bounded import bounded_reads
from lakecdc.maintain.reports import empty, ends, nothing, seconds_since
from lakecdc.maintain.rollback import named_history
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata.exports import EXPORTED
from lakecdc.metadata.floor import erased_after
from lakecdc.runtime import failpoints


def export_changes(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Write the changes that a table's destination does not have yet.

    The destination records the last exported snapshot. The consumer moves last: if a run is killed before that, the
    next run has nothing to export and moves the consumer.

    :raises InputError: the table has no destination, or one with other content; a named snapshot does not exist, or the
        last exported one has expired.
    :raises ConflictError: another run exported meanwhile.
    """
    options, started = spec.options_as(ExportChangesOptions), time.monotonic()
    destination = _destination(table.refresh(), options)
    head = table.head()
    if head is None:
        return empty(table)
    until = head if options.until is None else bound(table, options.until)
    exported = destination.exported()
    since = _since(table, exported, options)
    facts: dict[str, Any] = {"since": str(since.id) if since else None, "until": str(until.id)}
    if since is not None and exported not in (None, since.id) and (erased := erased_after(since.summary)):
        facts["rows_erased"] = erased.rows
    # after an erasure the destination must record the snapshot that replaces the exported one
    reason = _nothing_new(table, since, until) if since is not None and exported == since.id else None
    if options.dry_run and reason is None:
        with _read_changes(table, since, until, options) as changes:
            return nothing(table, "dry run: nothing was written", head, **facts, changes=_counts(changes))
    if options.consumer and not options.dry_run:
        # before the read, because the first snapshot must not expire meanwhile
        put_consumer(table, options.consumer, since or until)
    if reason is not None:
        return nothing(table, reason, head, **facts)
    with start_tag(table, until, JOB, leased=False), _read_changes(table, since, until, options) as changes:
        # read twice; a full export is too large to checkpoint
        stored = changes if since is None else changes.localCheckpoint()
        # a table with a history table has steps, except in its first export
        is_steps = since is not None and table.name in options.history_tables
        export = Export(table, since, until, stored, _counts(stored), is_steps)
        facts |= {"changes": export.counts, "rows": export.rows, **destination.write(export)}
    failpoints.reach("before_consumer")
    if options.consumer:
        put_consumer(table, options.consumer, until)
    facts["seconds"] = seconds_since(started)
    return TableReport(table.name, "done", **ends(head, head), metrics=facts)


@contextmanager
def _read_changes(
    table: IcebergTable, since: Snapshot | None, until: Snapshot, options: ExportChangesOptions
) -> Iterator[DataFrame]:
    with between(table, since, until) as net:
        history = named_history(table, options.history_tables.get(table.name))
        if since is None or history is None:
            yield net
        else:
            with bounded_reads(table) as bounded:
                yield steps(bounded, history.refresh(), since, until, net.localCheckpoint())


def _counts(changes: DataFrame) -> dict[str, int]:
    return {row[0]: int(row[1]) for row in changes.groupBy(CHANGE_TYPE).count().collect()}


def _destination(table: IcebergTable, options: ExportChangesOptions) -> FolderDestination | TableDestination:
    given = options.destinations.get(table.name)
    if given is None:
        raise InputError(
            "It has no export destination.",
            table=table.name,
            hint="Add it to options.destinations with a table or a folder.",
        )
    if given.folder is not None:
        return FolderDestination(table, given.folder, given.format)
    assert given.table is not None
    return TableDestination(table, given.table)


def _since(table: IcebergTable, exported: int | None, options: ExportChangesOptions) -> Snapshot | None:
    if exported is None:
        return bound(table, options.since) if options.since is not None else None
    snapshot = table.snapshot(exported)
    if snapshot is None:
        # the snapshot that differs from the expired one only by erased rows
        notes = ((each, erased_after(each.summary)) for each in table.ancestors())
        snapshot = next((each for each, note in notes if note is not None and exported in note.snapshots), None)
    if snapshot is None:
        raise InputError(
            f"The last exported snapshot {exported} has expired, so the changes after it are not known.",
            table=table.name,
            hint="Export to another table or folder, which starts with all rows. Name a consumer in "
            "options.consumer, so that expiry waits for the exports.",
        )
    return snapshot


def _nothing_new(table: IcebergTable, exported: Snapshot, until: Snapshot) -> str | None:
    """Return why there is nothing to export; None if there may be changes."""
    if exported.id == until.id:
        return EXPORTED
    undone = all(each.id != exported.id for each in table.ancestors())
    if not undone and any(each.id == until.id for each in table.ancestors_of(exported)):
        return f"it is already exported up to the later snapshot {exported.id}"
    return None
